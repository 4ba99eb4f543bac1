package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptrace"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ErrNoDaemon says that nobody answers on the directory's control socket.
var ErrNoDaemon = errors.New("no daemon answers")

const (
	maxAnswerBytes = 64 << 20
	clientTimeout  = 10 * time.Second
	lookEvery      = 2 * time.Second // while a question waits
)

// restart is the remedy where an answer is of another version.
const restart = "daemon and command differ in version, restart the daemon"

// Client asks the daemon of one directory.
type Client struct {
	path      string
	http      http.Client
	waiting   func(string)
	lookEvery time.Duration
}

// NewClient makes a Client; it connects at the first question.
func NewClient(dir string) *Client {
	c := &Client{path: filepath.Join(dir, SocketName), waiting: func(string) {}, lookEvery: lookEvery}
	c.http = http.Client{
		Timeout: clientTimeout,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, c.path) },
		},
	}
	return c
}

// Waiting has a person told what a question waits for, where that takes long.
func (c *Client) Waiting(say func(text string)) { c.waiting = say }

// Status is the daemon as a whole.
func (c *Client) Status(ctx context.Context) (st Status, err error) {
	return st, c.call(ctx, http.MethodGet, "/v1/status", nil, &st)
}

// Buckets are all buckets of all communicators, in the daemon's order.
func (c *Client) Buckets(ctx context.Context) (b []Bucket, err error) {
	if err := c.call(ctx, http.MethodGet, "/v1/buckets", nil, &b); err != nil {
		return nil, err
	}
	return b, c.identify(b)
}

// identify finds each bucket again from its JSON.
func (c *Client) identify(b []Bucket) (err error) {
	for i := range b {
		if b[i].Bucket, err = b[i].bucket(); err != nil {
			return c.otherVersion(err)
		}
	}
	return nil
}

func (c *Client) otherVersion(err error) error {
	return fmt.Errorf("daemon on %s: %w; %s", c.path, err, restart)
}

// Findings are the newest things that the daemon noticed, oldest first.
func (c *Client) Findings(ctx context.Context) (f []Finding, err error) {
	return f, c.call(ctx, http.MethodGet, "/v1/findings", nil, &f)
}

// Alarms are the newest ones of the detectors, oldest first.
func (c *Client) Alarms(ctx context.Context) (a []Alarm, err error) {
	return a, c.call(ctx, http.MethodGet, "/v1/alarms", nil, &a)
}

// Import sends rules in NCCL's CSV.
func (c *Client) Import(ctx context.Context, csv string) (n Imported, err error) {
	return n, c.call(ctx, http.MethodPost, "/v1/import", strings.NewReader(csv), &n)
}

func (c *Client) call(ctx context.Context, method, path string, body io.Reader, out any) error {
	if err := checkPath(c.path); err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://dynamiccld"+path, body)
	if err != nil {
		return fmt.Errorf("asking daemon: %w", err)
	}
	silent := &silence{client: c}
	ctx, answered := silent.attend(ctx)
	defer answered()
	req = req.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: silent.connected}))
	resp, err := c.http.Do(req)
	switch {
	case silent.ends(err):
		return silent.err()
	case errors.Is(err, unix.ENOTDIR):
		return fmt.Errorf("%w on %s, for %s is no directory; name the daemon's with --dir or DYNAMICCL_DIR", ErrNoDaemon, c.path, filepath.Dir(c.path))
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED), hungUp(err):
		return c.noDaemon()
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w to you on %s (permission denied); run the command as the daemon's user or as root", ErrNoDaemon, c.path)
	case err != nil:
		return fmt.Errorf("asking daemon on %s: %w; see `dynamiccld doctor`", c.path, err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswerBytes))
	if silent.ends(err) {
		return silent.err()
	}
	if hungUp(err) {
		return c.noDaemon()
	}
	if err != nil {
		return fmt.Errorf("reading the answer of the daemon on %s: %w; try again", c.path, err)
	}
	if resp.StatusCode != http.StatusOK {
		refused := &Error{Status: resp.StatusCode}
		if json.Unmarshal(data, refused) != nil || refused.Message == "" {
			refused.Message = resp.Status + "; " + restart
		} else if refused.Status == http.StatusNotFound { // an older daemon's word, which does not know what is asked for
			refused.Message += "; " + restart
		}
		return fmt.Errorf("daemon on %s answers: %w", c.path, refused)
	}
	if err := json.Unmarshal(data, out); err != nil {
		return fmt.Errorf("answer of the daemon on %s: %w; %s", c.path, err, restart)
	}
	return nil
}

// hungUp says that the other end of a connection is gone: a daemon has ended between a question and its answer, and who asks finds what
// he would have found a moment later.
func hungUp(err error) bool {
	const unnamed = "http: server closed idle connection" // net/http's, for an end before the question was written
	return err != nil && strings.HasSuffix(err.Error(), unnamed) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) // by net/http, which could not write the question, before it has read why
}

func (c *Client) noDaemon() error {
	if who, held := Holder(filepath.Dir(c.path)); held { // which another daemon would not get past
		return fmt.Errorf("%w on %s, though %v serves the directory: it is starting or ending, or its socket was removed; then restart it", ErrNoDaemon, c.path, who)
	}
	return fmt.Errorf("%w on %s; start one with `dynamiccld serve`, or name its directory with --dir or DYNAMICCL_DIR", ErrNoDaemon, c.path)
}
