package control_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"dynamiccl/cmd/dynamiccld/internal/control"
	"dynamiccl/cmd/dynamiccld/internal/fakebackend"
)

func TestRunOverTheSocket(t *testing.T) {
	dir, _, _ := start(t, fakebackend.Busy(), nil)
	r, err := control.NewClient(dir).Run(context.Background(), 0xc0ffee)
	if err != nil || len(r.Comms) != 3 || len(r.Comms[0].Buckets) != 3 || len(r.Comms[1].Buckets) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	c := r.Comms[0]
	first := c.Buckets[0]
	if !c.Active || c.ID != "00000000deadbeef" || first.NCCLVersion != "2.30.7" || first.Bucket.Log2Bytes != 22 {
		t.Errorf("%+v", c)
	}
	if l := first.Ledger; l == nil || l.Calls != 9500 || l.SavedNs != 88e6 || l.TrialNs != 0.3e6 || l.Trials != 12 {
		t.Errorf("ledger %+v", l)
	}
	if len(c.Replays) == 0 || c.Replays[0].Signal.MedianNs <= 0 || c.Replays[0].NCCLVersion != "2.30.7" || len(r.Comms[1].Replays) != 0 {
		t.Errorf("replays %+v and %+v", c.Replays, r.Comms[1].Replays)
	}
	if c.Buckets[1].Ledger != nil {
		t.Errorf("a bucket of which nothing is known has a ledger: %+v", c.Buckets[1].Ledger)
	}
}

func TestRunRefusesWhatIsNoRun(t *testing.T) {
	dir, _, _ := start(t, fakebackend.Busy(), nil)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(dir, control.SocketName))
	}}}
	for _, id := range []string{"0", "x", "00000000000000001", "-1", "%ff"} {
		resp, err := client.Get("http://d/v1/runs/" + id)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "hexadecimal") {
			t.Errorf("%s: %d %s, %v", id, resp.StatusCode, body, err)
		}
	}
	failing := fakebackend.Busy()
	failing.Refuse()
	dir, _, _ = start(t, failing, nil)
	if _, err := control.NewClient(dir).Run(context.Background(), 1); err == nil || !strings.Contains(err.Error(), fakebackend.ErrRefused.Error()) {
		t.Errorf("got %v", err)
	}
}
