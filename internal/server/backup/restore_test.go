package backup_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kici/internal/server"
	"kici/internal/server/backup"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

const key = "0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f\n"

// data is the data folder of a server that does not run.
func data(t *testing.T) backup.Place {
	t.Helper()
	p := backup.Place{DataDir: t.TempDir()}
	db, err := store.Open(t.Context(), store.Options{Path: filepath.Join(p.DataDir, "kici.db")})
	must(t, err)
	must(t, db.Close())
	for name, text := range map[string]string{"master.key": key, "admin.token": "secret token", "server.lock": "", "logs/a/1.log": "one\n",
		"logs/b/2.log": "two\n", "cache/c": "three", "cache/.tmp-unfinished": "planted half", ".restore-old/x": "left", "replaced-x/y": "planted old"} {
		path := filepath.Join(p.DataDir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o700))
		must(t, os.WriteFile(path, []byte(text), 0o600))
	}
	return p
}

func create(t *testing.T, from backup.Place, name string, o backup.Options) string {
	t.Helper()
	o.Now = time.Now()
	target := filepath.Join(t.TempDir(), name)
	_, err := backup.Create(t.Context(), from, target, o)
	must(t, err)
	return target
}

func restore(t *testing.T, source, dir string, force bool) (backup.Restored, error) {
	t.Helper()
	return backup.Restore(t.Context(), source, backup.Place{DataDir: dir}, backup.RestoreOptions{Now: time.Now(), Hold: server.HoldFolder, Force: force})
}

func TestFolderBecomesThatOfTheNodeWhoseLogsItHolds(t *testing.T) {
	from := data(t)
	must(t, os.WriteFile(filepath.Join(from.DataDir, "node-id"), []byte("n1\n"), 0o600))
	for _, c := range []struct {
		blobs       bool
		there, want string
	}{
		{true, "", "n1"}, {true, "n2", "n1"}, {false, "", "n1"}, {false, "n2", "n2"},
	} {
		dir := t.TempDir()
		if c.there != "" {
			must(t, os.WriteFile(filepath.Join(dir, "node-id"), []byte(c.there+"\n"), 0o600))
		}
		_, err := restore(t, create(t, from, "b", backup.Options{Blobs: c.blobs}), dir, false)
		must(t, err)
		got, err := os.ReadFile(filepath.Join(dir, "node-id"))
		must(t, err)
		if strings.TrimSpace(string(got)) != c.want {
			t.Errorf("with blobs %v into the folder of %q: it is that of %q, want %q", c.blobs, c.there, got, c.want)
		}
	}
}

func TestBackupHoldsNoKeyUnlessAsked(t *testing.T) {
	from := data(t)
	for name, o := range map[string]backup.Options{"without": {Blobs: true}, "with": {Blobs: true, Key: true}} {
		dir := create(t, from, name, o)
		var held bytes.Buffer
		must(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			raw, err := os.ReadFile(path)
			held.Write(raw)
			return err
		}))
		if got := strings.Contains(held.String(), strings.TrimSpace(key)); got != o.Key {
			t.Errorf("%s: holds the key: %v", name, got)
		}
		if strings.Contains(held.String(), "secret token") || strings.Contains(held.String(), "planted") {
			t.Errorf("%s: holds what does not belong into a backup", name)
		}
		info, err := os.Stat(dir)
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: mode %v, %v", name, info.Mode(), err)
		}
	}
}

func TestKeyComesWithTheBackupThatHasIt(t *testing.T) {
	from, to := data(t), filepath.Join(t.TempDir(), "new")
	done, err := restore(t, create(t, from, "b.tgz", backup.Options{Blobs: true, Key: true}), to, false)
	must(t, err)
	raw, err := os.ReadFile(filepath.Join(to, "master.key"))
	if err != nil || string(raw) != key || len(done.Warnings) != 1 {
		t.Errorf("key %q, %v; warnings %v", raw, err, done.Warnings)
	}
	done, err = restore(t, create(t, from, "b", backup.Options{}), filepath.Join(t.TempDir(), "without"), false)
	must(t, err)
	if len(done.Warnings) != 3 || !strings.Contains(done.Warnings[0], "the master key (fingerprint ") || !strings.Contains(done.Warnings[2], "only the list of the blobs, and 3 of 3") {
		t.Errorf("warnings %q", done.Warnings)
	}
}

func TestRestoreMovesAsideWhatItReplaces(t *testing.T) {
	from, to := data(t), data(t)
	must(t, os.WriteFile(filepath.Join(to.DataDir, "logs/a/1.log"), []byte("other"), 0o600))
	source := create(t, from, "b", backup.Options{Blobs: true})
	if _, err := restore(t, source, to.DataDir, false); !errors.Is(err, backup.ErrNotEmpty) || !strings.Contains(err.Error(), "--force") {
		t.Fatalf("without force: %v", err)
	}
	done, err := restore(t, source, to.DataDir, true)
	must(t, err)
	for path, want := range map[string]string{filepath.Join(to.DataDir, "logs/a/1.log"): "one\n", filepath.Join(done.MovedAside, "logs/a/1.log"): "other",
		filepath.Join(to.DataDir, "master.key"): key, filepath.Join(to.DataDir, "admin.token"): "secret token"} {
		if raw, err := os.ReadFile(path); err != nil || string(raw) != want {
			t.Errorf("%s: %q, %v", path, raw, err)
		}
	}
	if _, err := os.Stat(filepath.Join(done.MovedAside, "kici.db")); err != nil {
		t.Error(err)
	}
}

func TestListedBlobsAreComparedWithThoseInPlace(t *testing.T) {
	from := data(t)
	source := create(t, from, "b", backup.Options{})
	must(t, os.WriteFile(filepath.Join(from.DataDir, "logs/a/1.log"), []byte("one\nand more"), 0o600)) // it has grown
	must(t, os.WriteFile(filepath.Join(from.DataDir, "logs/b/2.log"), []byte("TWO\n"), 0o600))
	must(t, os.Remove(filepath.Join(from.DataDir, "cache/c")))
	done, err := restore(t, source, from.DataDir, true)
	must(t, err)
	if b := done.Blobs; b.Present != 1 || b.Missing != 1 || b.Different != 1 || strings.Join(b.Examples, " ") != "cache/c logs/b/2.log" {
		t.Errorf("blobs %+v", b)
	}
}

func TestDamagedBackupChangesNothing(t *testing.T) {
	from := data(t)
	spoil := func(name string, change func([]byte) []byte) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			path := filepath.Join(dir, name)
			raw, err := os.ReadFile(path)
			must(t, err)
			must(t, os.WriteFile(path, change(raw), 0o600))
		}
	}
	flip := func(raw []byte) []byte { raw[len(raw)/2] ^= 1; return raw }
	tests := []struct {
		name  string
		spoil func(t *testing.T, dir string)
		want  string
	}{
		{"a changed blob", spoil("blobs/logs/a/1.log", flip), "blob logs/a/1.log is not as its list says"},
		{"a changed database", spoil("kici.db", flip), "kici.db has"},
		{"a changed list", spoil("blobs.jsonl", func(raw []byte) []byte { return bytes.Replace(raw, []byte(`"size":4`), []byte(`"size":5`), 1) }), "blobs.jsonl has"},
		{"a list that leads out", spoil("blobs.jsonl", func(raw []byte) []byte { return bytes.Replace(raw, []byte(`logs/a/1.log`), []byte(`../../../etc`), 1) }), "damaged"},
		{"no manifest", func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "manifest.json"))) }, "it has no manifest; was it interrupted?"},
		{"a missing blob", func(t *testing.T, dir string) { must(t, os.Remove(filepath.Join(dir, "blobs/cache/c"))) }, "damaged"},
		{"a newer format", spoil("manifest.json", func(raw []byte) []byte { return bytes.Replace(raw, []byte(`"format": 1`), []byte(`"format": 2`), 1) }), "use a release at least as new"},
		{"another manifest", spoil("manifest.json", func([]byte) []byte { return []byte(`{}`) }), "is not one of a backup"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir, to := create(t, from, "b", backup.Options{Blobs: true}), t.TempDir()
			tt.spoil(t, dir)
			_, err := restore(t, dir, to, false)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
			untouched(t, to)
		})
	}
}

func TestArchiveThatLeadsElsewhereIsRefused(t *testing.T) {
	for _, name := range []string{"../evil", "blobs/../../evil", "/evil", "evil", "blobs/top", "blobs/.hidden/x", "blobs//evil"} {
		var raw bytes.Buffer
		w := tar.NewWriter(&raw)
		must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: 1, Mode: 0o600}))
		_, err := w.Write([]byte("x"))
		must(t, err)
		must(t, w.Close())
		source, to := filepath.Join(t.TempDir(), "b.tar"), t.TempDir()
		must(t, os.WriteFile(source, raw.Bytes(), 0o600))
		if _, err := restore(t, source, to, false); !errors.Is(err, backup.ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
		untouched(t, to)
	}
	source, to := filepath.Join(t.TempDir(), "b.tar"), t.TempDir()
	must(t, os.WriteFile(source, []byte("no archive at all"), 0o600))
	if _, err := restore(t, source, to, false); !errors.Is(err, backup.ErrDamaged) {
		t.Errorf("text: %v", err)
	}
}

// untouched fails the test when anything but the lock is in a data folder.
func untouched(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		if e.Name() != "server.lock" {
			t.Errorf("%s was left in the data folder", e.Name())
		}
	}
}

func TestNothingIsLeftOfABackupThatFailed(t *testing.T) {
	parent := t.TempDir()
	for _, name := range []string{"b", "b.tar"} {
		if _, err := backup.Create(t.Context(), backup.Place{DataDir: t.TempDir()}, filepath.Join(parent, name), backup.Options{Now: time.Now()}); err == nil {
			t.Error("a folder without a database was backed up")
		}
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) > 0 {
		t.Errorf("left %v, %v", entries, err)
	}
}

func TestBackupOfAnotherEngineIsRefused(t *testing.T) {
	source := create(t, data(t), "b", backup.Options{})
	to := backup.Place{DataDir: t.TempDir(), DatabaseURL: storetest.PostgresURL(t) + "&pool_max_conns=3"}
	o := backup.RestoreOptions{Now: time.Now(), Hold: server.HoldFolder}
	if _, err := backup.Restore(t.Context(), source, to, o); !errors.Is(err, backup.ErrNotEmpty) {
		t.Errorf("a database with tables: %v", err)
	}
	o.Force = true
	if _, err := backup.Restore(t.Context(), source, to, o); err == nil || !strings.Contains(err.Error(), "of a server on sqlite, and this one is configured for postgres") {
		t.Errorf("a database of another kind: %v", err)
	}
}
