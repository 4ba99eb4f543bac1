package live

import (
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/storefile"
)

// run plays a communicator of one process a rank, each with an environment of its own, and gives what status says of it.
func (r *rig) transportOf(name string, calls int, environ ...string) control.CommStatus {
	r.Helper()
	var all []*Ranks
	for rank := range 4 {
		text := strconv.Itoa(rank)
		run := r.ranks(name, []Phase{{quiet, calls}})
		run.Name, run.Rate, run.Env = name+"-"+text, 3000, nil
		run.Args = []string{"--rank", text, "--job", name, "--sync", filepath.Join(r.tmp, name+".sync"), "--require-plugin"}
		if environ[rank%len(environ)] != "" {
			run.Env = []string{environ[rank%len(environ)]}
		}
		r.begin(run)
		all = append(all, run)
	}
	st := r.until(name+" is tuned", func(s control.Status) bool { return len(s.Comms) == 1 && s.Comms[0].Active })
	for _, run := range all {
		if err := run.Wait(); err != nil {
			r.Fatal(err)
		}
	}
	r.until(name+" has left", func(s control.Status) bool { return len(s.Comms) == 0 })
	return st.Comms[0]
}

// Sockets and RDMA on one machine are told apart, in what is shown and in what is stored, and ranks that differ know neither.
func TestTransports(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.start()
	const calls = 4000
	const from = `starting from stored choices" shape="4 ranks, 2 nodes`
	for _, c := range []struct {
		name, want string
		environ    []string
	}{
		{"hidden", "", []string{"NCCL_NET_PLUGIN=other"}},
		{"socket", "socket", []string{""}}, // no device is open, so it is not NCCL's IB
		{"rdma", "rdma", []string{"NCCL_NET=IB"}},
		{"differ", "", []string{"NCCL_NET=IB", "NCCL_NET=IB", "NCCL_NET=IB", "NCCL_NET=Socket"}},
	} {
		if got := r.transportOf(c.name, calls, c.environ...); got.Transport != c.want {
			t.Errorf("%s: transport %q, want %q", c.name, got.Transport, c.want)
		}
		if r.says(from + ", ") {
			t.Errorf("%s: choices of another transport are taken for its own", c.name)
		}
		if c.want != "" && !r.says("measured while its transport was not known: they are measured again\" shape=\"4 ranks, 2 nodes, "+c.want) {
			t.Errorf("%s: nobody is told of what is stored without a transport", c.name)
		}
	}
	r.transportOf("again", 1000, "NCCL_NET=Socket")
	if !r.says(from + ", socket") {
		t.Error("what was measured over sockets is not there for sockets")
	}
	if err := r.daemon.Stop(); err != nil {
		t.Fatal(err)
	}
	buckets, bad, err := storefile.Read(filepath.Join(r.tmp, "store.db"), time.Now())
	if err != nil || len(bad) > 0 {
		t.Fatal(err, bad)
	}
	var stored []string
	for _, b := range buckets {
		stored = append(stored, b.Transport)
	}
	slices.Sort(stored)
	if got := slices.Compact(stored); !slices.Equal(got, []string{"", "rdma", "socket"}) {
		t.Errorf("stored under %q", got)
	}
}
