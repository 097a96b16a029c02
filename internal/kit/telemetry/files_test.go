package telemetry

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// shelf is a folder of logs, and the time there.
type shelf struct {
	*Files
	t    *testing.T
	now  time.Time
	said []error
}

func newShelf(t *testing.T) *shelf {
	s := &shelf{t: t, now: time.Date(2026, 3, 1, 23, 59, 0, 0, time.UTC)}
	s.Files = &Files{Dir: filepath.Join(t.TempDir(), "logs"), Prefix: "orchestrator-n1", MaxSize: 10, Days: 7,
		Now: func() time.Time { return s.now }, Failed: func(err error) { s.said = append(s.said, err) }}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (s *shelf) write(lines ...string) {
	s.t.Helper()
	for _, line := range lines {
		if n, err := s.Write([]byte(line + "\n")); n != len(line)+1 || err != nil {
			s.t.Errorf("wrote %d, %v", n, err)
		}
	}
}

func (s *shelf) want(files map[string]string) {
	s.t.Helper()
	got := map[string]string{}
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range entries {
		raw, err := os.ReadFile(filepath.Join(s.Dir, e.Name()))
		if err != nil {
			s.t.Fatal(err)
		}
		got[e.Name()] = string(raw)
	}
	if d := cmp.Diff(files, got); d != "" {
		s.t.Error(d)
	}
}

func TestALogTurnsToANewFileWithTheDayAndWhenOneIsFull(t *testing.T) {
	s := newShelf(t)
	s.write("one", "two", "three", "a line that is longer than a file", "four")
	s.now = s.now.Add(time.Minute)
	s.write("next")
	s.now = s.now.In(time.FixedZone("east", 3600)).Add(time.Hour) // still the same day, in UTC
	s.write("east")
	want := map[string]string{
		"orchestrator-n1-2026-03-01.log": "one\ntwo\n", "orchestrator-n1-2026-03-01.log.1": "three\n",
		"orchestrator-n1-2026-03-01.log.2": "a line that is longer than a file\n", "orchestrator-n1-2026-03-01.log.3": "four\n",
		"orchestrator-n1-2026-03-02.log": "next\neast\n",
	}
	s.want(want)
	for name := range want {
		if info, err := os.Stat(filepath.Join(s.Dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
}

func TestALogGoesOnWhereTheProcessBeforeLeftIt(t *testing.T) {
	s := newShelf(t)
	s.write("one", "two", "three")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s.Files = &Files{Dir: s.Dir, Prefix: s.Prefix, MaxSize: 10, Now: s.Now}
	s.write("4", "five")
	s.want(map[string]string{"orchestrator-n1-2026-03-01.log": "one\ntwo\n", "orchestrator-n1-2026-03-01.log.1": "three\n4\n", "orchestrator-n1-2026-03-01.log.2": "five\n"})
}

func TestOldLogsOfTheSameProcessAreDeleted(t *testing.T) {
	s := newShelf(t)
	if err := os.MkdirAll(s.Dir, 0o700); err != nil {
		t.Fatal(err)
	}
	keep := []string{"orchestrator-n1-2026-02-22.log", "orchestrator-n2-2026-01-01.log", "orchestrator-n1-2026-01-01.log.gz", "orchestrator-n1-2026-01-99.log", "other"}
	for _, name := range append([]string{"orchestrator-n1-2026-02-21.log", "orchestrator-n1-2026-02-21.log.12", "orchestrator-n1-2025-12-31.log"}, keep...) {
		if err := os.WriteFile(filepath.Join(s.Dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s.write("x")
	want := map[string]string{"orchestrator-n1-2026-03-01.log": "x\n"}
	for _, name := range keep {
		want[name] = ""
	}
	s.want(want)
	if err := os.MkdirAll(filepath.Join(s.Dir, "orchestrator-n1-2026-01-02.log", "x"), 0o700); err != nil { // cannot be removed
		t.Fatal(err)
	}
	s.now = s.now.AddDate(0, 0, 1)
	s.write("z")
	if raw, err := os.ReadFile(filepath.Join(s.Dir, "orchestrator-n1-2026-03-02.log")); err != nil || string(raw) != "z\n" || len(s.said) != 1 {
		t.Errorf("%q, %v, told of %v", raw, err, s.said)
	}
	for _, name := range []string{"orchestrator-n1-2026-03-02.log", "orchestrator-n1-2026-01-02.log"} {
		if err := os.RemoveAll(filepath.Join(s.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	delete(want, "orchestrator-n1-2026-02-22.log") // a day older by now
	s.now = s.now.AddDate(0, 0, 7)
	s.Days = 0
	s.write("y")
	want["orchestrator-n1-2026-03-09.log"] = "y\n"
	s.want(want)
}

// A folder that cannot be written is told of once, and left alone for a while.
func TestALogThatCannotBeKeptHoldsUpNothing(t *testing.T) {
	s := newShelf(t)
	if err := os.WriteFile(s.Dir, nil, 0o600); err != nil { // a file where the folder should be
		t.Fatal(err)
	}
	s.write("lost", "lost")
	s.now = s.now.Add(retryFiles)
	s.write("lost")
	if len(s.said) != 1 {
		t.Errorf("told of %v", s.said)
	}
	if err := os.Remove(s.Dir); err != nil {
		t.Fatal(err)
	}
	s.write("too early")
	s.now = s.now.Add(retryFiles)
	s.write("kept")
	if len(s.said) != 1 {
		t.Errorf("told of %v", s.said)
	}
	s.want(map[string]string{"orchestrator-n1-2026-03-01.log": "kept\n"})
}

func TestATeeWritesTheSameRecordsAsLines(t *testing.T) {
	var shown, kept bytes.Buffer
	level := new(slog.LevelVar)
	log := Tee(NewLog(&shown, level, FormatText), &kept, slog.String("service", "orchestrator"))
	log.Debug("not yet")
	log.With("run", "r1").Info("done", "token", "planted", "err", "none")
	level.Set(slog.LevelDebug)
	log.WithGroup("g").Debug("now", "n", 1)
	lines := strings.Split(strings.TrimSpace(kept.String()), "\n")
	if len(lines) != 2 || strings.Count(shown.String(), "\n") != 2 || strings.Contains(kept.String(), "planted") {
		t.Fatalf("shown %s\nkept %s", shown.String(), kept.String())
	}
	var first map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &first); err != nil {
		t.Fatal(err)
	}
	delete(first, "timestamp")
	if d := cmp.Diff(map[string]any{"level": "info", "message": "done", "service": "orchestrator", "runId": "r1", "token": hidden, "error": "none"}, first); d != "" {
		t.Error(d)
	}
}
