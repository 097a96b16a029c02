package storetest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

// TestWhatAnotherProcessLeftIsNotTaken finds the remains of a test process that had the same id and was killed.
func TestWhatAnotherProcessLeftIsNotTaken(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	left := filepath.Join(temporary, fmt.Sprint("kici-storetest-", os.Getpid()))
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "template.db"), []byte("of another schema"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if raw, err := newSQLiteTemplate(); err != nil || len(raw) == 0 {
			t.Errorf("a template of %d bytes: %v", len(raw), err)
		}
	}
	if there, err := os.ReadDir(temporary); err != nil || len(there) != 1 {
		t.Errorf("it leaves %v (%v)", there, err)
	}
}
