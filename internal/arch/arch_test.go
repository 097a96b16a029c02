// Package arch keeps the house in order: which room may use which, and who writes which table.
package arch

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "kici/"

// rooms lists every package in the order of the house: tools, words, decisions, the orchestrator, the author's side, the
// agent, and what stands outside. A package imports only packages above its own line. A new room needs a line here, at
// the place where it can be named.
var rooms = []string{
	// Tools that know nothing of CI.
	"internal/kit/version", "internal/kit/memory", "internal/kit/service", "internal/kit/telemetry", "internal/kit/config", "internal/kit/blob",
	"internal/kit/seal", "internal/kit/redact", "internal/kit/collate", "internal/kit/ecma", "internal/kit/jsontree",
	"internal/kit/script", "internal/kit/regex", "internal/kit/docker",
	// Words: values, parsing, matching of text.
	"internal/core/ci", "internal/core/glob", "internal/core/jsonpath", "internal/core/cron", "internal/core/label",
	"internal/core/lockfile", "internal/core/wire", "internal/core/adminwire", "internal/core/logline", "internal/core/attest",
	// Decisions: pure functions.
	"internal/decide/envelope", "internal/decide/inputs", "internal/decide/trigger", "internal/decide/contexts",
	"internal/decide/plan", "internal/decide/lifecycle", "internal/decide/capacity",
	// The orchestrator.
	"internal/server/store/walfile", "internal/server/store", "internal/server/outbox", "internal/server/cluster", "internal/server/auth",
	"internal/server/secrets", "internal/server/orgs", "internal/server/contexts", "internal/server/fleet", "internal/server/forge", "internal/server/forge/git",
	"internal/server/forge/generic", "internal/server/forge/local", "internal/server/inbox",
	"internal/server/logs/index", "internal/server/logs/search", "internal/server/logs/segments", "internal/server/logs/retention", "internal/server/logs",
	// What several nodes have of one log is joined apart from how a node keeps its own: neither needs to know of the other.
	"internal/server/logs/joined",
	"internal/server/timeline", "internal/server/queue", "internal/server/engine", "internal/server/cache",
	"internal/server/scaler", "internal/server/events", "internal/server/provenance", "internal/server/dispatch",
	"internal/server/hub", "internal/server/pipeline", "internal/server/ingest", "internal/server/report", "internal/server/live",
	"internal/server/backup",
	"internal/server/adminapi", "internal/server",
	// The author's side.
	"internal/author/sdk", "internal/author/bundle", "internal/author/compile", "internal/author/sample",
	// The other side of the wire.
	"internal/agent/sandbox", "internal/agent/workspace", "internal/agent/runner", "internal/agent/local", "internal/agent/ledger", "internal/agent/link", "internal/agent/host",
	"internal/agent/metrics", "internal/agent/steplog", "internal/agent/bundles", "internal/agent/job",
	"internal/agent",
	// Outside.
	"internal/client", "internal/proc", "internal/rig",
	// The killing test of the orchestrator is one of its rooms, but it stands on a whole system of processes.
	"internal/server/chaos",
	"internal/bench", "internal/demo", "internal/cli/livetree", "internal/cli/console", "internal/cli/author", "internal/cli/trial",
	"internal/cli/remote", "internal/cli/runs", "internal/cli/vault", "internal/cli/admin", "internal/cli", "cmd/kici",
}

// forTests are packages that only tests import.
var forTests = []string{"internal/vectors", "internal/testenv", "internal/kit/blob/blobtest", "internal/kit/docker/dockertest", "internal/server/store/storetest", "internal/server/servertest", "internal/cli/clitest", "internal/arch"}

// bans are imports that the order alone would allow.
var bans = []struct{ from, to, why string }{
	{"internal/agent", "internal/server", "an agent meets the server on the wire only, so that either can be another release"},
	{"internal/agent", "internal/author/compile", "an agent runs what was compiled; it must not decide what the lock file says"},
	{"internal/agent/job", "internal/agent/link", "a job speaks to the server through the ledger, so that it outlives a connection"},
	{"internal/agent/steplog", "internal/agent/link", "a log speaks to the server through the ledger, so that it outlives a connection"},
	{"internal/author", "internal/server", "authors need no server"},
	{"internal/cli/author", "internal/client", "authors need no server"},
	{"internal/cli/trial", "internal/client", "authors need no server"},
	{"internal/cli/author", "internal/server", "authors need no server"},
	{"internal/cli/trial", "internal/server", "authors need no server"},
	{"internal/cli/runs", "internal/server", "administration meets the server over HTTP only"},
	{"internal/cli/vault", "internal/server", "administration meets the server over HTTP only"},
	{"internal/client", "internal/server", "administration meets the server over HTTP only"},
	{"internal/decide", "database/sql", "a decision is a function of values"},
	{"internal/decide", "net/http", "a decision is a function of values"},
	{"internal/decide", "os", "a decision is a function of values"},
	{"internal/core", "database/sql", "words do no I/O"},
	{"internal/core", "net/http", "words do no I/O"},
	{"internal/core", "os", "words do no I/O"},
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var list []goPackage
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p goPackage
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, p)
	}
}

var root = filepath.Join("..", "..")

func TestRoomsUseOnlyRoomsAboveTheirOwn(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if slices.Contains(forTests, name) {
			continue
		}
		place := slices.Index(rooms, name)
		if place < 0 {
			t.Errorf("%s has no place in the house: add it to the list of rooms", name)
			continue
		}
		for _, path := range p.Imports {
			used, ours := strings.CutPrefix(path, module)
			if ours && slices.Index(rooms, used) >= place {
				t.Errorf("%s uses %s, which stands below it", name, used)
			}
			if ours && slices.Contains(forTests, used) {
				t.Errorf("%s uses %s, which is for tests", name, used)
			}
		}
	}
}

func TestBannedImports(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		for _, path := range p.Imports {
			for _, ban := range bans {
				if within(name, ban.from) && within(strings.TrimPrefix(path, module), ban.to) {
					t.Errorf("%s imports %s: %s", name, path, ban.why)
				}
			}
		}
	}
}

func within(path, folder string) bool { return path == folder || strings.HasPrefix(path, folder+"/") }

var (
	ownerLine  = regexp.MustCompile(`^-- owner: (\w+)`)
	createLine = regexp.MustCompile(`(?i)^CREATE TABLE (\w+)`)
	writing    = regexp.MustCompile(`(?i)\b(?:INSERT\s+INTO|UPDATE|DELETE\s+FROM)\s+(\w+)`)
)

// compiledAtStart is a pattern that is compiled as soon as the program starts, by itself or in a list of variables.
var compiledAtStart = regexp.MustCompile(`(?m)^(?:var |\t)[\w, ]+ = regexp\.MustCompile\(`)

// TestPatternsAreCompiledWhenNeeded refuses patterns of packages that are not in a sync.OnceValue: every process of the
// program, such as each agent and each runner, would compile them all, and keep them in memory for nothing.
func TestPatternsAreCompiledWhenNeeded(t *testing.T) {
	for path, raw := range sources(t) {
		for _, found := range compiledAtStart.FindAllString(raw, -1) {
			t.Errorf("%s: %s… is compiled when the program starts", path, strings.TrimSpace(found))
		}
	}
}

// sources are the texts of the program, without tests, by their paths.
func sources(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	err := filepath.WalkDir(filepath.Join(root, "internal"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		raw, err := os.ReadFile(path)
		texts[path] = string(raw)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// owners reads from the migrations which room owns which table.
func owners(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "internal/server/store/migrations/*.sql"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no migrations: %v", err)
	}
	out := map[string]string{"schema_migrations": "store"}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		owner := ""
		for line := range strings.Lines(string(raw)) {
			if m := ownerLine.FindStringSubmatch(line); m != nil {
				owner = m[1]
			}
			if m := createLine.FindStringSubmatch(line); m != nil {
				if owner == "" {
					t.Errorf("%s: table %s has no owner", file, m[1])
				}
				out[m[1]] = owner
			}
		}
	}
	return out
}

func TestTablesAreWrittenByTheirOwnerOnly(t *testing.T) {
	owner := owners(t)
	for path, raw := range sources(t) {
		room := filepath.Base(filepath.Dir(path))
		for _, m := range writing.FindAllStringSubmatch(raw, -1) {
			if by, known := owner[strings.ToLower(m[1])]; known && by != room {
				t.Errorf("%s writes table %s, which belongs to %s", path, m[1], by)
			}
		}
	}
}
