package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"dynamiccl/actions"
)

// Limits of one request. What a person asks fits into them many times.
const (
	maxHeaderBytes = 16 << 10
	MaxImportBytes = 1 << 20
	readTimeout    = 5 * time.Second
	writeTimeout   = 30 * time.Second
	backendTimeout = 5 * time.Second
)

// Error is what the server answers when it refuses.
type Error struct {
	Status  int    `json:"-"`
	Message string `json:"error"`
}

func (e *Error) Error() string { return e.Message }

// Server answers for a Backend.
type Server struct {
	backend Backend
	log     *slog.Logger
	now     func() time.Time
	allowed func(uid uint32) bool
}

// NewServer makes a Server. now is the wall clock, for the instants that it shows.
func NewServer(b Backend, log *slog.Logger, now func() time.Time) *Server {
	self := uint32(os.Geteuid())
	return &Server{backend: b, log: log, now: now, allowed: func(uid uint32) bool { return uid == self || uid == 0 }}
}

// Serve answers on l until ctx ends, then lets requests under way finish for a second. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	s.AddReadOnly(mux)
	mux.HandleFunc("POST /v1/import", s.importRules)
	mux.HandleFunc("GET /v1/runs/{id}", s.run)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		s.fail(w, &Error{http.StatusNotFound, fmt.Sprintf("no %s %s here; use the commands of `dynamiccld help`", r.Method, r.URL.Path)})
	})
	srv := &http.Server{
		Handler: s.checkPeer(mux), ConnContext: keepConn, MaxHeaderBytes: maxHeaderBytes,
		ReadHeaderTimeout: readTimeout, ReadTimeout: readTimeout, WriteTimeout: writeTimeout, IdleTimeout: readTimeout,
		ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
	}
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(stopped)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if srv.Shutdown(grace) != nil {
			srv.Close()
		}
	})
	err := srv.Serve(l)
	if stop() {
		return fmt.Errorf("serving control socket: %w", err)
	}
	<-stopped
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// readOnly is what may also be served on --listen: nothing there changes anything.
var readOnly = []struct {
	path string
	of   func(*Server, context.Context, Status) (any, error)
}{
	{"/v1/status", (*Server).status}, {"/v1/buckets", (*Server).buckets}, {"/v1/findings", (*Server).findings},
	{"/v1/alarms", (*Server).alarms}, {"/v1/replays", (*Server).replays}, {"/v1/links", (*Server).links},
}

// ReadOnlyPaths are what AddReadOnly adds, for who asks for something else.
func ReadOnlyPaths() (paths []string) {
	for _, r := range readOnly {
		paths = append(paths, r.path)
	}
	return paths
}

// AddReadOnly adds readOnly.
func (s *Server) AddReadOnly(mux *http.ServeMux) {
	for _, r := range readOnly {
		mux.HandleFunc("GET "+r.path, s.view(func(ctx context.Context, st Status) (any, error) { return r.of(s, ctx, st) }))
	}
}

type connKey struct{}

func keepConn(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// checkPeer refuses every user but the daemon's own and root. The directory's mode does so too; this holds when somebody
// loosens it or hands a connected socket on.
func (s *Server) checkPeer(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var cred *unix.Ucred
		err := errors.New("not a unix socket")
		if conn, ok := r.Context().Value(connKey{}).(*peerConn); ok {
			cred, err = conn.peer()
		}
		switch {
		case err != nil:
			s.log.Warn("control request refused: peer credentials cannot be read", "err", err)
			s.fail(w, &Error{http.StatusForbidden, "who you are cannot be read from the socket; run the command on the daemon's own host"})
		case !s.allowed(cred.Uid):
			s.log.Warn("control request refused: another user", "uid", cred.Uid, "pid", cred.Pid, "path", r.URL.Path)
			s.fail(w, &Error{http.StatusForbidden,
				fmt.Sprintf("uid %d may not control a daemon of uid %d; run the command as that user or as root", cred.Uid, os.Geteuid())})
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// view serves what is made of the daemon's status and, for most views, of one more question.
func (s *Server) view(of func(context.Context, Status) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), backendTimeout)
		defer cancel()
		st, err := s.backend.Status(ctx)
		if err != nil {
			s.fail(w, err)
			return
		}
		answer, err := of(ctx, st)
		if err != nil {
			s.fail(w, err)
			return
		}
		s.reply(w, answer)
	}
}

func (s *Server) status(_ context.Context, st Status) (any, error) { return complete(st), nil }

// complete makes empty lists of missing ones, so that JSON shows [] and {} where readers iterate.
func complete(st Status) Status {
	comms := make([]CommStatus, 0, len(st.Comms))
	for _, c := range st.Comms {
		c.Processes = append([]int{}, c.Processes...)
		slices.Sort(c.Processes)
		comms = append(comms, c)
	}
	st.Comms = comms
	if st.FindingCounts == nil {
		st.FindingCounts = map[string]uint64{}
	}
	return st
}

// ncclVersions are those of the communicators that live, by id.
func ncclVersions(st Status) map[string]string {
	versions := make(map[string]string, len(st.Comms))
	for _, c := range st.Comms {
		versions[c.ID] = c.NCCLVersion
	}
	return versions
}

func (s *Server) buckets(ctx context.Context, st Status) (any, error) {
	views, err := s.backend.Buckets(ctx)
	if err != nil {
		return nil, err
	}
	versions := ncclVersions(st)
	now, out := s.now(), make([]Bucket, 0, len(views))
	for _, v := range views {
		b := FromView(v, st.NowNs, now)
		b.NCCLVersion = versions[b.Comm]
		out = append(out, b)
	}
	return out, nil
}

func (s *Server) findings(ctx context.Context, st Status) (any, error) {
	found, err := s.backend.Findings(ctx)
	if err != nil {
		return nil, err
	}
	now, out := s.now(), make([]Finding, 0, len(found))
	for _, f := range found {
		out = append(out, fromFinding(f, st.NowNs, now))
	}
	return out, nil
}

func (s *Server) alarms(ctx context.Context, st Status) (any, error) {
	raised, err := s.backend.Alarms(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]Alarm, 0, len(raised))
	for _, a := range raised {
		out = append(out, fromAlarm(a, st.NowNs))
	}
	return out, nil
}

// Imported is the answer to an import.
type Imported struct {
	Rules   int `json:"rules"`
	Refused int `json:"refused,omitempty"`
}

func (s *Server) importRules(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxImportBytes))
	if tooLarge := new(http.MaxBytesError); errors.As(err, &tooLarge) {
		s.fail(w, &Error{http.StatusRequestEntityTooLarge, fmt.Sprintf("more than %d bytes of rules; split the file", MaxImportBytes)})
		return
	} else if err != nil {
		s.fail(w, &Error{http.StatusBadRequest, "reading rules: " + err.Error()})
		return
	}
	rules, refused, err := actions.ReadRules(string(body))
	if err != nil {
		s.fail(w, &Error{http.StatusBadRequest, err.Error()})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), backendTimeout)
	defer cancel()
	if err := s.backend.Import(ctx, rules, refused); err != nil {
		s.fail(w, err)
		return
	}
	s.log.Info("rules imported", "rules", len(rules), "refused", len(refused))
	s.reply(w, Imported{len(rules), len(refused)})
}

func (s *Server) reply(w http.ResponseWriter, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		s.fail(w, fmt.Errorf("writing the answer: %w", err))
		return
	}
	s.write(w, http.StatusOK, data)
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	refused := new(Error)
	if !errors.As(err, &refused) {
		s.log.Error("control request failed", "err", err)
		refused = &Error{http.StatusInternalServerError, err.Error()}
		if errors.Is(err, context.DeadlineExceeded) {
			refused = &Error{http.StatusServiceUnavailable, fmt.Sprintf("the daemon is busy and had no time for this within %v; try again, or look at its log", backendTimeout)}
		}
	}
	data, err := json.Marshal(refused)
	if err != nil {
		data = []byte(`{"error":"the error cannot be written"}`)
	}
	s.write(w, refused.Status, data)
}

func (s *Server) write(w http.ResponseWriter, status int, data []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	if _, err := w.Write(append(data, '\n')); err != nil {
		s.log.Debug("control client left before its answer", "err", err)
	}
}
