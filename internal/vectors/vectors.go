// Package vectors reads conformance vectors for tests: inputs and the results that a running system gave for them.
package vectors

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Case is one vector: a name, the input and the expected result, both left raw so that key order survives.
// Files with other members are read with LoadAs.
type Case struct {
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
	Expected json.RawMessage `json:"expected"`
	Origin   string          `json:"origin"`
}

// Load reads the vector file of that name. See LoadAs.
func Load(t testing.TB, name string) []Case {
	t.Helper()
	return LoadAs[Case](t, name)
}

// LoadAs reads a vector file as a list of T; some files hold the list in the member vectors of an object. It looks in
// the folder that KICI_VECTORS names when that is set, else in testdata/vectors at the root of the module. A missing
// file skips the test, since a folder of vectors may hold a part; a file that cannot be decoded fails it.
func LoadAs[T any](t testing.TB, name string) []T {
	t.Helper()
	raw := read(t, name)
	var cases []T
	into := any(&cases)
	if bytes.HasPrefix(raw, []byte("{")) {
		into = &struct{ Vectors *[]T }{&cases}
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatalf("decode vectors %s: %v", name, err)
	}
	if len(cases) == 0 {
		t.Fatalf("vector file %s holds no case", name)
	}
	return cases
}

func read(t testing.TB, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir(), name))
	if errors.Is(err, fs.ErrNotExist) {
		t.Skipf("no vector file %s in %s", name, dir())
	}
	if err != nil {
		t.Fatalf("read vectors: %v", err)
	}
	return raw
}

// Decode reads a part of a vector. One that cannot be read ends the test.
func Decode(t testing.TB, raw json.RawMessage, to any) {
	t.Helper()
	if err := json.Unmarshal(raw, to); err != nil {
		t.Fatalf("decode %s: %v", raw, err)
	}
}

// Same compares a result with what the vector expects, as JSON values.
func Same(t *testing.T, want json.RawMessage, got any) {
	t.Helper()
	raw, err := json.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	var w, g any
	Decode(t, want, &w)
	Decode(t, raw, &g)
	if diff := cmp.Diff(w, g); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Samples is the path below testdata/samples, for tests that read recorded traffic, workflows or lock files.
func Samples(elem ...string) string {
	return filepath.Join(append([]string{root(), "testdata", "samples"}, elem...)...)
}

func dir() string {
	if d := os.Getenv("KICI_VECTORS"); d != "" {
		return d
	}
	return filepath.Join(root(), "testdata", "vectors")
}

// root is the folder of go.mod, found from this file so that it holds in every package's tests.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// SuiteCase is one case of a file that tests several functions. Error is set instead of Expected where the function
// must fail.
type SuiteCase struct {
	ID       string          `json:"id"`
	Fn       string          `json:"fn"`
	Input    json.RawMessage `json:"input"`
	Expected json.RawMessage `json:"expected"`
	Error    string          `json:"error"`
}

// LoadSuite reads a file of cases for several functions, as LoadAs does.
func LoadSuite(t testing.TB, name string) []SuiteCase {
	t.Helper()
	raw := read(t, name)
	var suite struct {
		Cases []SuiteCase `json:"cases"`
	}
	if err := json.Unmarshal(raw, &suite); err != nil {
		t.Fatalf("decode vectors %s: %v", name, err)
	}
	if len(suite.Cases) == 0 {
		t.Fatalf("vector file %s holds no case", name)
	}
	return suite.Cases
}
