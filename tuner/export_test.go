package tuner

// AuditPhase is what a communicator's audit is at.
func (c *Core) AuditPhase(id CommID) int { return int(c.comms[id].audit.phase) }
