package sweep

import (
	"slices"
	"strings"
	"testing"

	"dynamiccl/actions"
)

// On registered memory NCCL is told by name what to run, in graphs and in streams; what it refuses runs nowhere, its default is what it
// takes by itself, and every element is compared.
func TestLiveRegistered(t *testing.T) {
	for calls, nccl := range map[string]string{"graph": "2.32.3", "stream": "2.31.2"} {
		m := newMachine(t, "h200x2-nvlink-quiet", kernels(t, "FAKEGPU_OPTIONS=--nccl "+nccl)...)
		said := m.must("--ranks", "2", "--buffers", "registered", "--calls", calls, "--sizes", "1K,4M", "--collectives", "AllReduce,AllGather",
			"--choices", "symmetric,ring,nvls,lsa/bulk/32", "--budget", "1ms", "--out", "t.csv")
		recorded, rows := m.medians(m.recorded("h200x2-nvlink-quiet")), m.medians(m.path("t.csv"))
		for key, want := range map[string]string{
			"AllReduceRegistered 1024 default - - -": "3.56", "AllReduceRegistered 1024 symmetric AGxLL_R - -": "3.56",
			"AllReduceRegistered 1024 symmetric RSxLD_AGxST - -": "7.91", "AllReduceRegistered 4194304 symmetric AGxLL_R - -": "246.77",
			"AllReduceRegistered 4194304 default - - -": "35.16", "AllReduceRegistered 4194304 symmetric RSxLD_AGxST - -": "35.16",
			"AllGatherRegistered 4194304 symmetric LL - -": "87.39", "AllGatherRegistered 4194304 symmetric ST - -": "23.58",
		} {
			if got := rows[key]; len(got) == 0 || slices.ContainsFunc(got, func(us string) bool { return us != want }) {
				t.Errorf("%s calls: %s: %v us, want %s", calls, key, got, want)
			}
		}
		for _, key := range []string{"AllReduceRegistered 1024 collective Ring LL 0", "AllReduceRegistered 4194304 collective Ring Simple 0", "AllGatherRegistered 4194304 collective Ring LL128 0"} {
			plain := strings.NewReplacer("Registered", "", " 0", " 32").Replace(key) // where NCCL takes that number by itself
			if us := rows[key]; len(us) != 1 || strings.Contains(key, "4194304") && !slices.Equal(us, recorded[plain]) {
				t.Errorf("%s calls: %s: %v us, recorded %v", calls, key, us, recorded[plain])
			}
		}
		points, _, err := readJournal(m.path("t.points.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		refused, ours := 0, 0
		for _, p := range points {
			switch {
			case p.Outcome == OutcomeOverruled && strings.Contains(p.Reason, "NCCL refuses the name"):
				refused++
			case p.Outcome != OutcomeOK && p.Outcome != outcomeDone:
				t.Errorf("%+v", p)
			case p.Action != actions.Default.String() && p.Outcome == OutcomeOK && !strings.HasPrefix(p.Ran, strings.TrimSuffix(p.Action, "/32")):
				t.Errorf("%s ran %s", p.Action, p.Ran)
			case strings.HasPrefix(p.Action, "lsa/"):
				ours++
			}
		}
		// NVLS, and with multicast and TMA three symmetric kernels of AllReduce and four of AllGather, at two sizes.
		if refused != 2*(1+3)+2*(1+4) || ours != 2 {
			t.Errorf("%s calls: %d points refused, %d of our kernels\n%s", calls, refused, ours, said)
		}
		if table := readTable(t, m.path("t.csv")); table.Condition != map[string]string{"graph": "quiet-registered", "stream": "stream-calls-registered"}[calls] {
			t.Errorf("condition %s", table.Condition)
		}
		m.alone()
	}
	m := newMachine(t, "h200x2-nvlink-quiet", kernels(t, "FAKEGPU_OPTIONS=--nccl 2.28.9")...)
	said := m.must("--ranks", "2", "--buffers", "registered", "--sizes", "1K", "--collectives", "AllReduce", "--out", "t.csv")
	rows, named := m.medians(m.path("t.csv")), 0
	for row := range rows {
		if !strings.Contains(row, " default ") && !strings.Contains(row, " lsa ") {
			named++
		}
	}
	if len(rows) < 2 || named > 0 || !strings.Contains(said, "NCCL 2.28.9 cannot be told by name what to run on registered buffers: take 2.31 or newer") {
		t.Errorf("an NCCL that takes no names: %v\n%s", rows, said)
	}
	if said, code := m.sweep("--ranks", "2", "--buffers", "registered", "--collectives", "Broadcast", "--out", "b.csv"); code != 2 || !strings.Contains(said, "Broadcast") {
		t.Errorf("Broadcast: %d\n%s", code, said)
	}
}
