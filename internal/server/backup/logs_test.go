package backup_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kici/internal/server"
	"kici/internal/server/backup"
	"kici/internal/server/logs"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

// openLogs opens the logs of a place, as its server does.
func openLogs(t *testing.T, p backup.Place) *logs.Store {
	t.Helper()
	db, err := store.Open(t.Context(), store.Options{URL: p.DatabaseURL, Path: filepath.Join(p.DataDir, "kici.db")})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	s, err := logs.Open(t.Context(), logs.Options{Root: filepath.Join(p.DataDir, "logs"), DB: db})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// say writes lines of a job's log, a chunk for each.
func say(t *testing.T, s *logs.Store, job string, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		must(t, s.Append(t.Context(), logs.Chunk{RunID: "r", JobID: job, JobName: job, MessageID: fmt.Sprint(i), At: 1, Lines: []string{fmt.Sprint("line ", i)}}))
	}
}

// TestLogsThatGrowUnderABackup lets logs grow between the copy of the database and that of the files. Each is as it was at
// one of the two moments, or in between; one that was a row and became a file is no exception.
func TestLogsThatGrowUnderABackup(t *testing.T) {
	storetest.Each(t, func(t *testing.T, db *store.DB) {
		from := backup.Place{DataDir: t.TempDir(), MasterKey: key}
		to := backup.Place{DataDir: filepath.Join(t.TempDir(), "to"), MasterKey: key}
		if db.Dialect == store.Postgres {
			from.DatabaseURL, to.DatabaseURL = storetest.PostgresURL(t), storetest.PostgresURL(t)
		}
		s := openLogs(t, from)
		bounds := map[string][3]int{ // lines before the backup, after the copy of the database, after that of the files
			"stays":  {3, 3, 3},
			"grows":  {3, 6, 6},
			"turns":  {3, 20, 40},
			"long":   {20, 40, 60},
			"begins": {0, 3, 3},
			"later":  {3, 3, 30},
		}
		for job, n := range bounds {
			say(t, s, job, 0, n[0])
		}
		target := filepath.Join(t.TempDir(), "b.tar")
		copied := false
		_, err := backup.Create(t.Context(), from, target, backup.Options{Blobs: true, Now: time.Now(), Progress: func(p backup.Progress) {
			if p.What != "database" || p.Files == 0 {
				return
			}
			copied = true
			for job, n := range bounds {
				say(t, s, job, n[0], n[1])
			}
		}})
		must(t, err)
		if !copied {
			t.Fatal("nothing has grown under the backup")
		}
		for job, n := range bounds {
			say(t, s, job, n[1], n[2])
		}
		_, err = backup.Restore(t.Context(), target, to, backup.RestoreOptions{Now: time.Now(), Hold: server.HoldFolder, Force: true})
		must(t, err)
		restored := openLogs(t, to)
		for job, n := range bounds {
			lines, _, _, err := restored.Lines(t.Context(), logs.Path("r", job, 0), 0, 1000)
			if err != nil || len(lines) < n[0] || len(lines) > n[1] {
				t.Errorf("log that %s: %d lines, want %d to %d, %v", job, len(lines), n[0], n[1], err)
			}
			for i, line := range lines {
				if !strings.Contains(line, fmt.Sprintf(`"msg":"line %d"`, i)) {
					t.Errorf("log that %s: line %d is %s", job, i, line)
				}
			}
			say(t, restored, job, 0, 60) // its agent sends what it has not heard of, and goes on
			if lines, _, _, err := restored.Lines(t.Context(), logs.Path("r", job, 0), 0, 1000); err != nil || len(lines) != 60 {
				t.Errorf("log that %s: %d lines in the end, %v", job, len(lines), err)
			}
		}
	})
}

// TestShortLogsComeWithTheDatabase restores a backup that has no blobs.
func TestShortLogsComeWithTheDatabase(t *testing.T) {
	from, to := backup.Place{DataDir: t.TempDir(), MasterKey: key}, backup.Place{DataDir: filepath.Join(t.TempDir(), "to"), MasterKey: key}
	say(t, openLogs(t, from), "build", 0, 3)
	_, err := restore(t, create(t, from, "b", backup.Options{}), to.DataDir, false)
	must(t, err)
	lines, _, _, err := openLogs(t, to).Lines(t.Context(), logs.Path("r", "build", 0), 0, 10)
	if err != nil || len(lines) != 3 {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}
