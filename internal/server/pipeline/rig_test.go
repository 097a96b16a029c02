package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kici/internal/core/lockfile"
	"kici/internal/kit/seal"
	"kici/internal/kit/service"
	"kici/internal/server/engine"
	"kici/internal/server/forge"
	"kici/internal/server/forge/generic"
	"kici/internal/server/forge/git"
	"kici/internal/server/forge/local"
	"kici/internal/server/inbox"
	"kici/internal/server/ingest"
	"kici/internal/server/pipeline"
	"kici/internal/server/store"
)

// parts are everything from the socket to the engine.
type parts struct {
	db      *store.DB
	base    string // folder of repositories
	now     atomic.Int64
	poke    service.Poke
	sources *forge.Sources
	inbox   *inbox.Inbox
	ingest  *ingest.Ingest
	git     *git.Reader
	deps    pipeline.Deps
	counted chan string // results that the pipeline counts, one a delivery
}

// inc is a Counter made of a function.
type inc func(labels ...string)

func (f inc) Inc(labels ...string) { f(labels...) }

func assemble(db *store.DB, base string, runs pipeline.Engine) (*parts, error) {
	keys, err := seal.NewKeyring(strings.Repeat("0f", 32), "")
	if err != nil {
		return nil, err
	}
	p := &parts{db: db, base: base, poke: service.NewPoke(), git: git.NewReader(git.Options{}), counted: make(chan string, 1000)}
	p.now.Store(1_700_000_000_000)
	clock := func() time.Time { return time.UnixMilli(p.now.Load()) }
	log := slog.New(slog.DiscardHandler)
	repositories := local.New(p.git)
	p.sources = forge.NewSources(db, keys, clock)
	p.inbox = inbox.New(db, clock, p.poke, inbox.Options{NodeID: "n"})
	p.ingest = ingest.New(ingest.Deps{Sources: p.sources, Inbox: p.inbox, Clock: clock, Log: log, Refs: map[string]forge.Refs{forge.Local: repositories}})
	p.deps = pipeline.Deps{
		DB: db, Inbox: p.inbox, Poke: p.poke, Sources: p.sources, Engine: runs, Log: log, Clock: clock,
		Providers: map[string]pipeline.Provider{
			forge.Local:   {Normaliser: repositories, LockFiles: repositories, Refs: repositories},
			forge.Generic: {Normaliser: generic.Normaliser{}},
		},
		Processed: inc(func(labels ...string) { p.counted <- labels[0] }),
	}
	return p, nil
}

// rig is parts for a test, with a source and a socket.
type rig struct {
	*parts
	runs   *recorder
	source forge.Source
	url    string
}

func newRig(t testing.TB, db *store.DB) *rig {
	t.Helper()
	runs := &recorder{db: db, seen: map[string]bool{}}
	p, err := assemble(db, filepath.Join(t.TempDir(), "git"), runs)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.git.Close)
	server := httptest.NewServer(p.ingest.Handler())
	t.Cleanup(server.Close)
	g := &rig{parts: p, runs: runs, url: server.URL}
	g.source = g.add(t, "repos", &forge.LocalConfig{RepoBasePath: p.base})
	return g
}

func (p *parts) add(t testing.TB, name string, localConfig *forge.LocalConfig) forge.Source {
	t.Helper()
	s := forge.Settings{Options: forge.DefaultOptions(), Verification: forge.Verification{Method: forge.MethodNone}}
	s.Name, s.Local, s.RateLimitRPM = name, localConfig, 100_000
	src, err := p.sources.Create(t.Context(), "default", s)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// recorder is an engine that keeps what is registered, once for each run id.
type recorder struct {
	db    *store.DB
	mu    sync.Mutex
	seen  map[string]bool
	all   []engine.Registration
	calls int
	fail  func(ctx context.Context, r engine.Registration) error
}

func (e *recorder) Register(ctx context.Context, r engine.Registration, also ...func(ctx context.Context, tx *store.Tx) error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.calls++
	if e.fail != nil {
		if err := e.fail(ctx, r); err != nil {
			return err
		}
	}
	if !e.seen[r.RunID] {
		e.seen[r.RunID] = true
		e.all = append(e.all, r)
	}
	return together(ctx, e.db, also)
}

func (e *recorder) Origin(context.Context, string) (engine.Origin, error) {
	return engine.Origin{}, engine.ErrRunNotFound // what is only registered was never stored
}

func (e *recorder) names() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, r := range e.all {
		out = append(out, r.Plan.Workflow)
	}
	return out
}

// settle runs the pipeline until it has counted n deliveries and every worker has ended.
func (p *parts) settle(t testing.TB, n int) (results []string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- pipeline.New(p.deps).Run(ctx) }()
	for range n {
		results = append(results, <-p.counted)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("pipeline ended with %v", err)
	}
	return results
}

// push posts a delivery and gives its id.
func (g *rig) push(t testing.TB, source, event, body, key string) string {
	t.Helper()
	return push(t, g.url, source, event, body, key)
}

func push(t testing.TB, url, source, event, body, key string) string {
	t.Helper()
	id, err := tryPush(t, url, source, event, body, key)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func tryPush(t testing.TB, url, source, event, body, key string) (id string, err error) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/webhook/default/generic/"+source, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Event-Type", event)
	if key != "" {
		req.Header.Set("X-Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var answer struct{ DeliveryID string }
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || resp.StatusCode/100 != 2 {
		return "", fmt.Errorf("status %d, %w", resp.StatusCode, err)
	}
	return answer.DeliveryID, nil
}

// logged is a delivery's row of the event log.
type logged struct {
	Status  string
	Matched int
	RunID   string
	Repo    string
	Error   string
}

func (p *parts) logged(t testing.TB, id string) (row logged) {
	t.Helper()
	err := p.db.Read().QueryRowContext(t.Context(), `SELECT status, matched_count, COALESCE(run_id, ''), COALESCE(repo_identifier, ''),
		COALESCE(error_message, '') FROM event_log WHERE delivery_id = $1`, id).Scan(&row.Status, &row.Matched, &row.RunID, &row.Repo, &row.Error)
	if err != nil {
		t.Fatal(err)
	}
	return row
}

func run(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@e.c"}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// commit puts a lock file (none for "") into a repository below the base and gives the commit's id.
func (p *parts) commit(t testing.TB, repo, lock string) string {
	t.Helper()
	dir := filepath.Join(p.base, repo)
	if _, err := os.Stat(dir); err != nil {
		run(t, ".", "init", "-q", "-b", "main", dir)
	}
	if lock != "" {
		path := filepath.Join(dir, lockfile.Path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(lock), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	run(t, dir, "add", "-A")
	run(t, dir, "commit", "-q", "--allow-empty", "-m", "fix: it\n\nbody")
	return run(t, dir, "rev-parse", "HEAD")
}

// workflow is a lock file's entry with one job; trigger is the JSON of its one trigger.
func workflow(name, trigger, job string) string {
	return fmt.Sprintf(`{"name":%q,"source":{"file":".kici/workflows/%s.ts","export":"#default"},"contentHash":"h","compileSchemaVersion":5,
		"triggers":[%s],"jobs":[%s]}`, name, name, trigger, job)
}

const (
	onMain  = `{"_type":"push","branches":[{"type":"glob","pattern":"main"}],"paths":[]}`
	onOther = `{"_type":"push","branches":[{"type":"glob","pattern":"release/*"}],"paths":[]}`
	onError = `{"_type":"push","branches":[{"type":"regex","pattern":"("}],"paths":[]}`
	aJob    = `{"_type":"static","name":"build","runsOn":[{"kind":"exact","value":"linux"}],"needs":[],"steps":[{"name":"s","hasOutputs":false}]}`
)

func lockOf(workflows ...string) string {
	return `{"schemaVersion":29,"source":{"file":"a.ts","export":"#default"},"contentHash":"x","workflows":[` + strings.Join(workflows, ",") + `]}`
}

func pushBody(repo, sha string) string {
	return fmt.Sprintf(`{"ref":"refs/heads/main","after":%q,"repository":{"full_name":%q},"sender":{"login":"octo"},
		"head_commit":{"message":"fix: it\n\nbody"}}`, sha, repo)
}
