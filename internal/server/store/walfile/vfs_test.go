//go:build linux

package walfile

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	_ "modernc.org/sqlite"
	"pgregory.net/rapid"
)

// connect opens a database through the VFS. It goes to the disk for checkpoints only when it is told to.
func connect(t testing.TB, path, options string) *sql.Conn {
	t.Helper()
	c, end := dial(t, address(path)+options)
	t.Cleanup(end)
	return c
}

func address(path string) string {
	return "file:" + path + "?vfs=" + name + "&_pragma=journal_mode(WAL)&_pragma=wal_autocheckpoint(0)"
}

func dial(t testing.TB, dsn string) (c *sql.Conn, end func()) {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err == nil {
		c, err = db.Conn(context.Background())
	}
	if err != nil {
		t.Fatal(err)
	}
	return c, func() { _, _ = c.Close(), db.Close() }
}

func exec1(c *sql.Conn, query string, args ...any) error {
	_, err := c.ExecContext(context.Background(), query, args...)
	return err
}

func must(t testing.TB, c *sql.Conn, queries ...string) {
	t.Helper()
	for _, q := range queries {
		if err := exec1(c, q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

const createRows = "CREATE TABLE rows (id INTEGER PRIMARY KEY, size INTEGER CHECK (size < 1000000), body BLOB)"

// content is the size of each row, after a look at all pages.
func content(c *sql.Conn) (map[int]int, error) {
	rows, err := c.QueryContext(context.Background(), "SELECT id, size, length(hex(body)) / 2 FROM rows")
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	found := map[int]int{}
	for rows.Next() {
		var id, size, length int
		if err := rows.Scan(&id, &size, &length); err != nil {
			return nil, err
		}
		if size != length {
			return nil, fmt.Errorf("row %d has %d bytes of %d", id, length, size)
		}
		found[id] = size
	}
	return found, rows.Err()
}

// afterKill is what the default VFS finds in the files as they are now.
func afterKill(t testing.TB, path string) map[int]int {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "killed.db")
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(path + suffix)
		if err == nil {
			err = os.WriteFile(copied+suffix, b, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c, end := dial(t, "file:"+copied)
	defer end()
	var integrity string
	if err := c.QueryRowContext(context.Background(), "PRAGMA integrity_check").Scan(&integrity); err != nil || integrity != "ok" {
		t.Fatalf("integrity %s, %v", integrity, err)
	}
	found, err := content(c)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestACommitIsWrittenAtOnce(t *testing.T) {
	watchDisk(t)
	c := connect(t, filepath.Join(t.TempDir(), "a.db"), "")
	must(t, c, createRows, "INSERT INTO rows VALUES (1, 60000, zeroblob(60000))")
	before := writes.Load()
	must(t, c, "INSERT INTO rows VALUES (2, 60000, zeroblob(60000))")
	if n := writes.Load() - before; n != 1 {
		t.Errorf("%d writes for one commit", n)
	}
}

func TestWhatWasRolledBackIsNotWrittenOverAnothersCommit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	first, second := connect(t, path, "&_pragma=cache_size(4)"), connect(t, path, "")
	must(t, first, createRows, "PRAGMA wal_checkpoint(TRUNCATE)", // so that the end of the transaction reads nothing in the log
		"BEGIN IMMEDIATE", "INSERT INTO rows VALUES (1, 60000, randomblob(60000))", "ROLLBACK")
	must(t, second, "INSERT INTO rows VALUES (2, 60000, randomblob(60000))")
	must(t, first, "INSERT INTO rows VALUES (3, 9, randomblob(9))")
	if diff := cmp.Diff(map[int]int{2: 60000, 3: 9}, afterKill(t, path)); diff != "" {
		t.Error(diff)
	}
}

// machine changes a database through two connections, one of which writes at a time, and knows what was committed.
type machine struct {
	t         *rapid.T
	tb        testing.TB
	path      string
	conns     [2]*sql.Conn
	pads      bool // fills sectors up after a commit: where that fails, SQLite refuses a commit that is in the file
	writer    int  // in conns, of the open transaction; -1 for none
	committed map[int]int
	current   map[int]int // in the open transaction
	saved     map[int]int // at its savepoint, nil for none
}

// do runs a statement of the transaction, on a disk that gets full or does not.
func (m *machine) do(query string, args ...any) bool {
	var err error
	run := func() { err = exec1(m.conns[m.writer], query, args...) }
	after := int64(-1)
	if !m.pads {
		after = rapid.SampledFrom([]int64{-1, -1, -1, -1, 0, 10, 24, 3000, 9000}).Draw(m.t, "room")
	}
	if after < 0 {
		run()
	} else {
		diskFull(after, run)
	}
	if err == nil {
		return true
	}
	if after < 0 {
		m.t.Fatalf("%s: %v", query, err)
	}
	m.afterFailure()
	return false
}

// afterFailure asks SQLite whether it has rolled the transaction back, or goes on with it.
func (m *machine) afterFailure() {
	if exec1(m.conns[m.writer], "BEGIN") == nil {
		m.rollback()
	}
}

func (m *machine) rollback() {
	must(m.tb, m.conns[m.writer], "ROLLBACK")
	m.writer, m.saved = -1, nil
}

func (m *machine) Begin(t *rapid.T) {
	if m.writer >= 0 {
		t.Skip("a transaction is open")
	}
	m.t, m.writer = t, rapid.IntRange(0, 1).Draw(t, "writer")
	must(m.tb, m.conns[m.writer], "BEGIN IMMEDIATE")
	m.current = maps.Clone(m.committed)
}

func (m *machine) Put(t *rapid.T) {
	m.begun(t)
	id, size := rapid.IntRange(1, 12).Draw(t, "id"), rapid.IntRange(1, 20000).Draw(t, "size")
	if m.do("INSERT INTO rows VALUES ($1, $2, randomblob($2)) ON CONFLICT (id) DO UPDATE SET size = excluded.size, body = excluded.body", id, size) {
		m.current[id] = size
	}
}

// Grow is a statement that SQLite can undo alone: after an error the transaction may go on.
func (m *machine) Grow(t *rapid.T) {
	m.begun(t)
	by := rapid.IntRange(1, 3000).Draw(t, "by")
	if m.do("UPDATE rows SET size = size + $1, body = randomblob(size + $1)", by) {
		for id := range m.current {
			m.current[id] += by
		}
	}
}

func (m *machine) Delete(t *rapid.T) {
	m.begun(t)
	id := rapid.IntRange(1, 12).Draw(t, "id")
	if m.do("DELETE FROM rows WHERE id = $1", id) {
		delete(m.current, id)
	}
}

func (m *machine) Save(t *rapid.T) {
	m.begun(t)
	if m.saved == nil && m.do("SAVEPOINT s") {
		m.saved = maps.Clone(m.current)
	}
}

func (m *machine) Restore(t *rapid.T) {
	m.begun(t)
	if m.saved != nil && m.do("ROLLBACK TO s") {
		m.current = maps.Clone(m.saved)
	}
}

func (m *machine) Rollback(t *rapid.T) {
	m.begun(t)
	m.rollback()
}

func (m *machine) Commit(t *rapid.T) {
	m.begun(t)
	if m.do("COMMIT") {
		m.committed, m.writer, m.saved = m.current, -1, nil
	}
}

func (m *machine) ReadWhileTheDiskIsFull(t *rapid.T) {
	m.begun(t)
	var err error
	diskFull(0, func() { _, err = content(m.conns[m.writer]) })
	if err != nil {
		m.afterFailure()
	}
}

func (m *machine) Checkpoint(t *rapid.T) {
	if m.writer >= 0 {
		t.Skip("a transaction is open")
	}
	mode := rapid.SampledFrom([]string{"PASSIVE", "RESTART", "TRUNCATE"}).Draw(t, "mode")
	must(m.tb, m.conns[rapid.IntRange(0, 1).Draw(t, "by")], "PRAGMA wal_checkpoint("+mode+")")
}

func (m *machine) begun(t *rapid.T) {
	if m.writer < 0 {
		t.Skip("no transaction is open")
	}
	m.t = t
}

// Check finds what is committed in the files and through each connection, and what is not in the writer's alone.
func (m *machine) Check(t *rapid.T) {
	if rapid.Bool().Draw(t, "kill") {
		if diff := cmp.Diff(m.committed, afterKill(m.tb, m.path)); diff != "" {
			t.Fatalf("after a kill: %s", diff)
		}
	}
	for i, c := range m.conns {
		if rapid.Bool().Draw(t, "leave what is held") {
			continue
		}
		want := m.committed
		if i == m.writer {
			want = m.current
		}
		found, err := content(c)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, found); diff != "" {
			t.Fatalf("connection %d: %s", i, diff)
		}
	}
}

func TestEveryCommitAndNothingElseIsInTheFilesAtAnyTime(t *testing.T) {
	watchDisk(t)
	rapid.Check(t, func(rt *rapid.T) {
		// The cache is so small that pages of a transaction get to the log before its commit, and are written there again.
		const fills = "&_pragma=synchronous(FULL)&psow=0"
		durability := rapid.SampledFrom([]string{"&_pragma=synchronous(NORMAL)", "&_pragma=synchronous(FULL)", fills}).Draw(rt, "durability")
		dir, err := os.MkdirTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		m := &machine{tb: t, path: filepath.Join(dir, "a.db"), writer: -1, pads: durability == fills, committed: map[int]int{}}
		for i := range m.conns {
			c, end := dial(t, address(m.path)+durability+"&_pragma=cache_size(4)")
			defer end()
			m.conns[i] = c
		}
		must(t, m.conns[0], createRows)
		rt.Repeat(rapid.StateMachineActions(m))
	})
}

const writesTo = "WALFILE_TEST_WRITES_TO"

// TestMain is the process that is killed, too: it reports each commit.
func TestMain(m *testing.M) {
	if _, err := VFS(); err != nil {
		panic(err)
	}
	if path := os.Getenv(writesTo); path != "" {
		commitForever(path)
	}
	os.Exit(m.Run())
}

func commitForever(path string) {
	db, err := sql.Open("sqlite", address(path)+"&_pragma=wal_autocheckpoint(50)")
	if err != nil {
		panic(err)
	}
	for id := 1; ; id++ {
		if _, err := db.Exec("INSERT INTO rows VALUES ($1, 20000, zeroblob(20000))", id); err != nil {
			panic(err)
		}
		fmt.Println(id)
	}
}

func TestAKilledProcessLosesNothingThatItCommitted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	must(t, connect(t, path, ""), createRows)
	for range 5 {
		must(t, connect(t, path, ""), "DELETE FROM rows")
		last := killAfter(t, path, 40)
		found, err := content(connect(t, path, ""))
		if err != nil {
			t.Fatal(err)
		}
		for id := 1; id <= last; id++ {
			if found[id] != 20000 {
				t.Fatalf("commit %d of %d is lost", id, last)
			}
		}
	}
}

// killAfter kills a writing process that has reported so many commits, and says how many it reported in all.
func killAfter(t *testing.T, path string, commits int) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), writesTo+"="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	last := 0
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if last, err = strconv.Atoi(strings.TrimSpace(lines.Text())); err != nil {
			t.Fatal(err)
		}
		if last == commits {
			_ = cmd.Process.Kill()
		}
	}
	_ = cmd.Wait()
	if last < commits {
		t.Fatalf("the process ended after %d commits", last)
	}
	return last
}
