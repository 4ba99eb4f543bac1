package control

import "time"

// SetAllowed lets a test stand in for another user.
func SetAllowed(s *Server, f func(uid uint32) bool) { s.allowed = f }

// Allowed is the rule of a new server.
func Allowed(s *Server, uid uint32) bool { return s.allowed(uid) }

// LookEvery makes a client impatient.
func LookEvery(c *Client, d time.Duration) { c.lookEvery = d }
