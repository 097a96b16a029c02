package server_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/kit/seal"
	"kici/internal/server/secrets"
	"kici/internal/server/servertest"
	"kici/internal/server/store"
)

// values of secrets that must be found nowhere but in frames to agents.
const (
	declaredValue = "declared-a1b2c3d4e5"
	outputValue   = "output-f6a7b8c9d0\nof two lines"
	refusedValue  = "of-a-failed-job-1f2e3d"
)

// setSecret stores a secret as an administrator would.
func setSecret(t *testing.T, h *servertest.Home, scope, key, value string) {
	t.Helper()
	keys, err := seal.NewKeyring(h.Settings.MasterKey, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := secrets.New(h.DB, keys, time.Now).Set(t.Context(), secrets.Actor{UserID: "test"}, servertest.Org, scope, key, value); err != nil {
		t.Fatal(err)
	}
}

// sealOutputs does what an agent does with the secret outputs of a job.
func sealOutputs(t *testing.T, runPublicKey string, outputs map[string]string) map[string]wire.SecretOutput {
	t.Helper()
	own, err := seal.NewKeyPair()
	if err != nil {
		t.Fatal(err)
	}
	agreed, err := seal.Agree(own.Private, runPublicKey, seal.RunOutputs)
	if err != nil {
		t.Fatal(err)
	}
	sealed := map[string]wire.SecretOutput{}
	for key, value := range outputs {
		sealed[key] = wire.SecretOutput{AgentPublicKey: own.Public, Encrypted: agreed.Seal([]byte(value))}
	}
	return sealed
}

// end reports the end of a job that was just dispatched to the peer.
func end(t *testing.T, p *servertest.Peer, d wire.JobDispatch, state ci.JobStatus, outputs map[string]string) {
	t.Helper()
	p.Send(wire.JobAck{MessageID: "ack-" + d.JobID, RunID: d.RunID, JobID: d.JobID, Timestamp: 1})
	p.Send(wire.JobStatus{MessageID: "run-" + d.JobID, RunID: d.RunID, JobID: d.JobID, State: ci.JobRunning, Timestamp: 1})
	p.Send(wire.JobStatus{MessageID: "end-" + d.JobID, RunID: d.RunID, JobID: d.JobID, State: state, Timestamp: 2,
		SecretOutputs: sealOutputs(t, d.RunPublicKey, outputs)})
}

func nextDispatch(t *testing.T, p *servertest.Peer, job string) wire.JobDispatch {
	t.Helper()
	d, ok := p.Next().(wire.JobDispatch)
	if !ok {
		t.Fatalf("no dispatch of %s came", job)
	}
	if name := jobNames(t, d); name != "ci/"+job {
		t.Fatalf("the dispatch of %s came, want %s", name, job)
	}
	return d
}

func TestSecretOutputsReachDependantsAndRestNowhereInClear(t *testing.T) {
	servertest.Each(t, nil, func(t *testing.T, h *servertest.Home) {
		setSecret(t, h, secrets.DefaultScope, "DECLARED", declaredValue)
		server := h.Start(t)
		p := h.Dial(t)
		p.Hello(h, wire.AgentRegister{AgentID: "a", Labels: []string{"linux"}, MaxConcurrency: 1})
		h.Push(t, app, "main", h.Commit(t, app, servertest.Lock("make", "fail", "read<make", "last<read")))

		declared := map[string]string{"DECLARED": declaredValue}
		maker := nextDispatch(t, p, "make")
		if diff := cmp.Diff(declared, maker.Secrets); diff != "" {
			t.Errorf("secrets of a job that needs none (- want, + got):\n%s", diff)
		}
		end(t, p, maker, ci.JobSuccess, map[string]string{"TOKEN": outputValue, "DECLARED": "an output in its place"})
		end(t, p, nextDispatch(t, p, "fail"), ci.JobFailed, map[string]string{"REFUSED": refusedValue})

		reader := nextDispatch(t, p, "read")
		if diff := cmp.Diff(map[string]string{"DECLARED": declaredValue, "TOKEN": outputValue}, reader.Secrets); diff != "" {
			t.Errorf("secrets of the dependant (- want, + got):\n%s", diff)
		}
		if reader.RunPublicKey == "" || reader.RunPublicKey != maker.RunPublicKey {
			t.Errorf("the run has the keys %q and %q", maker.RunPublicKey, reader.RunPublicKey)
		}
		inClear(t, h) // while the outputs are kept
		if n := h.Count(t, "SELECT count(*) FROM run_secret_outputs"); n != 2 {
			t.Errorf("%d secret outputs are kept, want 2", n)
		}
		end(t, p, reader, ci.JobSuccess, nil)

		last := nextDispatch(t, p, "last")
		if diff := cmp.Diff(declared, last.Secrets); diff != "" {
			t.Errorf("secrets of a dependant of the dependant (- want, + got):\n%s", diff)
		}
		end(t, p, last, ci.JobSuccess, map[string]string{"TOKEN": outputValue})
		h.AwaitRuns(t, 1)
		if n := h.Count(t, "SELECT count(*) FROM run_secret_outputs"); n != 0 {
			t.Errorf("%d secret outputs are left after the end of the run", n)
		}
		if n := h.Count(t, "SELECT count(public_key) + count(sealed_private_key) FROM execution_runs"); n != 0 {
			t.Errorf("%d keys are left after the end of the run", n)
		}
		server.Stop()
		inClear(t, h)
	})
}

// inClear looks for the values of secrets in every row of every table and in every file of the data folder.
func inClear(t *testing.T, h *servertest.Home) {
	t.Helper()
	var needles []string
	for _, value := range []string{declaredValue, outputValue, refusedValue, h.Settings.MasterKey} {
		needles = append(needles, value, base64.StdEncoding.EncodeToString([]byte(value)), fmt.Sprintf("%q", value))
	}
	seen := false // the name of the repository, which is no secret: the search does find what is there
	look := func(where string, content []byte) {
		seen = seen || bytes.Contains(content, []byte(app))
		for _, needle := range needles {
			if bytes.Contains(content, []byte(needle)) {
				t.Errorf("%s holds a secret in clear", where)
			}
		}
	}
	for _, table := range tables(t, h.DB) {
		eachCell(t, h.DB, table, look)
	}
	if !seen {
		t.Error("the search does not see the database")
	}
	err := filepath.WalkDir(h.Settings.DataDir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		look(path, content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func tables(t *testing.T, db *store.DB) (names []string) {
	t.Helper()
	query := "SELECT name FROM sqlite_master WHERE type = 'table'"
	if db.Dialect == store.Postgres {
		query = "SELECT table_name FROM information_schema.tables WHERE table_schema = current_schema()"
	}
	rows, err := db.Read().QueryContext(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	return names
}

// eachCell calls look with every value of a table, numbers and flags as text.
func eachCell(t *testing.T, db *store.DB, table string, look func(where string, content []byte)) {
	t.Helper()
	columns := columns(t, db, table)
	forms := make([]string, len(columns))
	for i, column := range columns {
		forms[i] = `"` + column + `"`
		if table+"."+column != "inbox.payload" { // the one column of bytes
			forms[i] = "CAST(" + forms[i] + " AS TEXT)"
		}
	}
	row := make([][]byte, len(columns))
	into := make([]any, len(columns))
	for i := range row {
		into[i] = &row[i]
	}
	ask := store.Ask{Query: "SELECT " + strings.Join(forms, ", ") + ` FROM "` + table + `"`, Row: func(r store.Row) error {
		if err := r.Scan(into...); err != nil {
			return err
		}
		for i, cell := range row {
			look(strings.Join([]string{"column", columns[i], "of", table}, " "), cell)
		}
		return nil
	}}
	if err := db.Read().All(t.Context(), ask); err != nil {
		t.Fatal(err)
	}
}

func columns(t *testing.T, db *store.DB, table string) []string {
	t.Helper()
	query := "SELECT name FROM pragma_table_info($1)"
	if db.Dialect == store.Postgres {
		query = "SELECT column_name FROM information_schema.columns WHERE table_schema = current_schema() AND table_name = $1"
	}
	names, err := store.Texts(t.Context(), db.Read(), query, table)
	if err != nil {
		t.Fatal(err)
	}
	return names
}
