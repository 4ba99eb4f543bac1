package harnesstest
import ("testing";"dynamiccl/nccltuner")
func (d *stubDaemon) dbg(t *testing.T) { for _, r := range d.records { var v nccltuner.RecordView; err := r.View(&v); t.Logf("%+v %v", v, err) } }
