package stdioagent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cockroachdb/datadriven"
	"go.uber.org/goleak"

	"dynamiccl/actions"
	"dynamiccl/agents"
	"dynamiccl/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// two are the learners of these tests: what else there is does not change their answers.
func two(name string) (agents.NewLearner, error) {
	if name != agents.NameUCB && name != agents.NameDefault {
		return nil, fmt.Errorf("learner %q: %w (one of two)", name, agents.ErrUnknownLearner)
	}
	return agents.New(name)
}

func one(string) int { return 1 }

func newAgent(t testing.TB) *Agent {
	t.Helper()
	a, err := New(two, one)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestScripts runs the conversations of testdata: each "say" is one process' worth of lines on one agent.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		a := newAgent(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd == "new" {
				a = newAgent(t)
			}
			var out strings.Builder
			if err := a.Serve(t.Context(), strings.NewReader(d.Input), &out); err != nil {
				return err.Error()
			}
			return out.String()
		})
	})
}

const resetLine = `{"op":"reset","learner":"ucb","seed":1,"topology":{"ranks":8,"nodes":1,"nics":0,"transport":"nvlink"},"buckets":[` +
	`{"id":0,"collective":"AllReduce","bytes":1024,"actions":[{"path":"default"},{"path":"collective","algorithm":"Ring","protocol":"LL","channels":8},` +
	`{"path":"collective","algorithm":"Tree","protocol":"LL","channels":8},{"path":"gin","backend":"proxy","contexts":4}]}]}`

// converse drives an agent through pipes as another process does, one line at a time.
func TestDrivesALearnerThroughPipes(t *testing.T) {
	a := newAgent(t)
	inRead, in := io.Pipe()
	outRead, out := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- a.Serve(t.Context(), inRead, out) }()
	answers := bufio.NewScanner(outRead)
	say := func(line string) map[string]any {
		if _, err := fmt.Fprintln(in, line); err != nil {
			t.Fatal(err)
		}
		if !answers.Scan() {
			t.Fatal("no answer")
		}
		var v map[string]any
		if err := json.Unmarshal(answers.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	if v := say(resetLine); v["ok"] != true {
		t.Fatalf("%v", v)
	}
	costs, rng := []float64{16, 9, 12, 30}, rand.New(rand.NewPCG(1, 1))
	settled := 0
	for call := range 128 {
		v := say(`{"op":"ask","bucket":0}`)
		i := int(v["action"].(float64))
		if call >= 64 && i == 1 {
			settled++
		}
		us := costs[i] * math.Exp(0.05*rng.NormFloat64())
		if v := say(fmt.Sprintf(`{"op":"tell","bucket":0,"action":%d,"counter_us":%g,"signal_us":%g}`, i, 0.8*us, us)); v["diagnosis"] != "none" {
			t.Errorf("call %d: %v", call, v)
		}
	}
	if settled < 56 {
		t.Errorf("ran the best action in %d of the last 64 calls", settled)
	}
	if v := say(`{"op":"quit"}`); v["ok"] != true {
		t.Errorf("%v", v)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := errors.Join(inRead.Close(), in.Close(), outRead.Close()); err != nil {
		t.Error(err)
	}
}

func TestLongLines(t *testing.T) {
	// One byte too long, as long as may be (and wrong), an ordinary line, one without an end.
	in := strings.Repeat("x", MaxLine+1) + "\n" + strings.Repeat(" ", MaxLine-2) + "{}\n" + `{"op":"fly"}` + "\n" + strings.Repeat("y", MaxLine+70000)
	var out bytes.Buffer
	if err := newAgent(t).Serve(t.Context(), strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("{\"error\":\"a line is longer than %d bytes: it was skipped\"}\n", MaxLine) +
		"{\"error\":\"op \\\"\\\": want one of reset, ask, tell, quit: bad request\"}\n" +
		"{\"error\":\"op \\\"fly\\\": want one of reset, ask, tell, quit: bad request\"}\n" +
		fmt.Sprintf("{\"error\":\"a line is longer than %d bytes: it was skipped\"}\n", MaxLine)
	if out.String() != want {
		t.Errorf("%s", &out)
	}
}

func TestEndsOfServing(t *testing.T) {
	broken := errors.New("broken pipe")
	if err := newAgent(t).Serve(t.Context(), iotest.ErrReader(broken), io.Discard); !errors.Is(err, broken) {
		t.Errorf("input: %v", err)
	}
	if err := newAgent(t).Serve(t.Context(), strings.NewReader("{}\n"), iotest.TruncateWriter(failing{broken}, 1<<20)); !errors.Is(err, broken) {
		t.Errorf("output: %v", err)
	}
	in, w := io.Pipe()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := newAgent(t).Serve(ctx, in, io.Discard); err != nil {
		t.Errorf("stopped while it waits: %v", err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// faulty is a learner with a bug.
type faulty struct{}

func (faulty) Name() string                                   { return "faulty" }
func (faulty) Observe(state.Observation)                      {}
func (faulty) Shift(agents.Diagnosis)                         {}
func (faulty) Propose(int) (actions.Action, []actions.Action) { panic("a bug") }

func TestOutlivesAFaultOfALearner(t *testing.T) {
	a, err := New(func(string) (agents.NewLearner, error) {
		return func(agents.Task) agents.Learner { return faulty{} }, nil
	}, one)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := a.Serve(t.Context(), strings.NewReader(resetLine+"\n"+`{"op":"ask","bucket":0}`+"\n"+`{"op":"ask","bucket":0}`+"\n"+resetLine), &out); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 5 || !strings.Contains(lines[1], "internal error: a bug") || !strings.Contains(lines[2], "before reset") || lines[3] != `{"ok":true}` {
		t.Errorf("%s", &out)
	}
}

func TestAnswersStayShort(t *testing.T) {
	answer, _ := newAgent(t).Answer([]byte(`{"op":"` + strings.Repeat("ä", 100_000) + `"}`))
	if len(answer) > 2*maxError || !json.Valid(answer) {
		t.Errorf("%d bytes", len(answer))
	}
}

func TestBoundsOfAReset(t *testing.T) {
	set := func(n int) string {
		s := `{"path":"default"}`
		for i := range n - 1 {
			s += fmt.Sprintf(`,{"path":"collective","algorithm":"Ring","protocol":"Simple","channels":%d,"threads":%d}`, i%255+1, 32*(i/255+1))
		}
		return s
	}
	reset := func(buckets, actions int) string {
		var all []string
		for i := range buckets {
			all = append(all, fmt.Sprintf(`{"id":%d,"collective":"AllReduce","bytes":1024,"actions":[%s]}`, i, set(actions)))
		}
		return `{"op":"reset","learner":"default","topology":{"ranks":2,"nodes":1},"buckets":[` + strings.Join(all, ",") + `]}`
	}
	for _, c := range []struct {
		buckets, actions int
		want             string
	}{{1, maxActions, `{"ok":true}`}, {1, maxActions + 1, "at most 1024"}, {17, maxActions, "buckets[16]: too much to learn at once"}} {
		if answer, _ := newAgent(t).Answer([]byte(reset(c.buckets, c.actions))); !strings.Contains(string(answer), c.want) {
			t.Errorf("%d buckets of %d actions: %s", c.buckets, c.actions, answer)
		}
	}
}

// FuzzAnswer: whatever comes, one line of JSON goes back, and the next good line is answered.
func FuzzAnswer(f *testing.F) {
	f.Add([]byte(resetLine))
	f.Add([]byte(`{"op":"ask","bucket":0}`))
	f.Add([]byte(`{"op":"tell","bucket":0,"action":1,"counter_us":9.1,"signal_us":9.9,"more":[1,{}]}`))
	f.Add([]byte(`{"op":"tell","bucket":0,"action":-1,"signal_us":1e300}`))
	f.Add([]byte(`{"op":"reset","learner":"nobody"}`))
	f.Add([]byte("null"))
	known := newAgent(f) // a design takes as long as a thousand lines
	f.Fuzz(func(t *testing.T, in []byte) {
		a := &Agent{learner: known.learner, batch: one, design: known.design}
		for _, l := range [][]byte{in, []byte(resetLine), in, []byte(`{"op":"ask","bucket":0}`)} {
			answer, _ := a.Answer(l)
			if !json.Valid(answer) || bytes.Count(answer, []byte("\n")) != 1 || answer[len(answer)-1] != '\n' {
				t.Fatalf("%q answers %q", l, answer)
			}
		}
	})
}
