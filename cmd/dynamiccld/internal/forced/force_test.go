package forced

import (
	"errors"
	"testing"

	"dynamiccl/actions"
	"dynamiccl/cmd/dynamiccld/internal/workers"
	"dynamiccl/nccltuner"
)

func TestCompare(t *testing.T) {
	parse := func(s string) actions.Action {
		a, err := actions.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	for _, c := range []struct {
		choice, asked, ran string
		nccl               int
		device, exact      bool
		outcome            string // "": a row
		onDevice           bool
	}{
		{"default", "default", "Ring/LL/2", 22809, false, false, "", false},
		{"Ring/LL/8", "Ring/LL/8", "Ring/LL/8", 22809, false, true, "", false},
		{"Ring/LL/8", "Ring/LL/8", "Ring/LL/2", 22809, false, false, "", false},
		{"Ring/LL/8", "Ring/LL/8", "Ring/LL/2", 22809, false, true, Overruled, false},
		{"NVLS/Simple", "NVLS/Simple", "NVLS/Simple/16", 22809, false, true, "", false},
		{"Ring/LL/8", "Ring/LL/8", "Tree/LL/8", 22809, false, false, Overruled, false},
		{"Ring/LL/8", "Ring/LL/8", "Ring/LL128/8", 22809, false, false, Overruled, false},
		{"Ring/LL/8", "default", "Ring/LL/8", 22809, false, false, Overruled, false},
		{"Ring/LL/8", "Ring/LL/8", "default", 23203, true, false, "", true},
		{"Ring/LL/8", "Ring/LL/8", "default", 22809, true, false, Overruled, false},
		{"Ring/LL/8", "Ring/LL/8", "default", 23203, false, false, Overruled, false},
		{"Ring/LL128/8", "Ring/LL128/8", "default", 23203, true, false, Overruled, false},
		{"lsa/twoshot/16", "lsa/twoshot/16", "lsa/twoshot/16", 23203, true, true, "", false},
		{"lsa/twoshot/16", "lsa/twoshot/16", "lsa/twoshot/4", 23203, true, false, "", false},
		{"lsa/twoshot/16", "lsa/twoshot/16", "lsa/twoshot/4", 23203, true, true, Overruled, false},
		{"lsa/twoshot/16", "lsa/twoshot/16", "lsa/oneshot/16", 23203, true, false, Overruled, false},
		{"lsa/oneshot/4", "lsa/oneshot/4", "Tree/LL/4", 23203, true, false, Overruled, false}, // Tree and LL are 0, as one shot is
		{"lsa/oneshot/4", "lsa/oneshot/4", "default", 23203, true, false, Overruled, false},
		{"lsa/oneshot/4", "default", "lsa/oneshot/4", 23203, true, false, Overruled, false},
		{"Tree/LL/4", "Tree/LL/4", "lsa/oneshot/4", 23203, true, false, Overruled, false},
	} {
		s := &Session{o: Config{Exact: c.exact}}
		s.view.Ranks = []nccltuner.RankView{{NCCLVersion: c.nccl, DeviceLL: c.device}}
		var f Choice
		err := s.compare(1, nccltuner.Sample{Action: parse(c.asked), Ran: parse(c.ran)}, parse(c.choice), &f)
		got := ""
		if fault := new(Fault); errors.As(err, &fault) {
			got = fault.Outcome
		} else if err != nil {
			t.Fatal(err)
		}
		if got != c.outcome || f.Device != c.onDevice {
			t.Errorf("%+v: %q (%v), device %v", c, got, err, f.Device)
		}
	}
}

func TestInForce(t *testing.T) {
	s := &Session{o: Config{Calls: workers.Graph}}
	s.view.Ranks = []nccltuner.RankView{{Version: 7}, {Version: 7}}
	if !s.inForce(7) || s.inForce(8) {
		t.Error("two ranks with version 7")
	}
	s.view.Ranks[1].Version = 6
	if s.inForce(7) {
		t.Error("one rank behind")
	}
	s.view.Ranks[1] = nccltuner.RankView{Version: 7, Left: true}
	if s.inForce(7) {
		t.Error("one rank has left")
	}
	if s.view.Epoch = renewEpochs; s.Worn() {
		t.Error("worn too early")
	}
	if s.view.Epoch++; !s.Worn() {
		t.Error("not worn")
	}
	if s.o.Calls = workers.Stream; s.Worn() {
		t.Error("stream calls have heartbeats")
	}
	if s.o.Calls, s.o.Beat = workers.Graph, true; s.Worn() {
		t.Error("it has heartbeats")
	}
}
