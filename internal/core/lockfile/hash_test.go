package lockfile

import (
	"encoding/json"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"kici/internal/vectors"
)

func TestVectorsContentHash(t *testing.T) {
	for _, c := range vectors.Load(t, "contenthash.json") {
		t.Run(c.Name, func(t *testing.T) {
			var in struct {
				Fn, Source, AssetDigest string
				CompileSchemaVersion    int
				LockText                string
				Prefix, Content         string
			}
			decode(t, c.Input, &in)
			var got any
			var err error
			switch in.Fn {
			case "workflow":
				got = WorkflowHash(in.Source, in.CompileSchemaVersion, in.AssetDigest)
			case "lockFile":
				got, err = FileHash([]byte(in.LockText))
			case "depLock":
				got = DepLockHash(in.Prefix, in.Content)
			case "assetDigest":
				return // see TestVectorsAssetDigest
			default:
				t.Fatalf("unknown function %q", in.Fn)
			}
			var want string
			decode(t, c.Expected, &want)
			if err != nil || got != want {
				t.Errorf("got %v, %v; want %s", got, err, want)
			}
		})
	}
}

func TestFindDepLockTakesTheFirstCandidate(t *testing.T) {
	tests := []struct {
		name   string
		files  fstest.MapFS
		prefix string
		ok     bool
	}{
		{"none", fstest.MapFS{"package-lock.json": {}}, "", false},
		{"pnpm at the root wins", fstest.MapFS{"yarn.lock": {}, "pnpm-lock.yaml": {}, ".kici/package-lock.json": {}}, "pnpm", true},
		{"npm below .kici", fstest.MapFS{".kici/package-lock.json": {}}, "npm", true},
		{"yarn 1", fstest.MapFS{"yarn.lock": {Data: []byte("# yarn lockfile v1\n")}}, "yarn-classic", true},
		{"yarn 4", fstest.MapFS{"yarn.lock": {Data: []byte("# generated\n\n__metadata:\n  version: 8\n")}}, "yarn-berry", true},
	}
	for _, tt := range tests {
		if prefix, _, ok, err := FindDepLock(tt.files); prefix != tt.prefix || ok != tt.ok || err != nil {
			t.Errorf("%s: %q, %v, %v", tt.name, prefix, ok, err)
		}
	}
}

func TestVectorsResourcesAndSteps(t *testing.T) {
	for _, c := range vectors.Load(t, "matrix.json") {
		var in struct {
			Fn   string
			Args []json.RawMessage
		}
		decode(t, c.Input, &in)
		switch in.Fn {
		case "memory":
			t.Run(c.Name, func(t *testing.T) { memoryVector(t, in.Args[0], c.Expected) })
		case "resources":
			t.Run(c.Name, func(t *testing.T) {
				var want struct{ OK bool }
				decode(t, c.Expected, &want)
				if _, err := ParseResources(in.Args[0]); (err == nil) != want.OK {
					t.Errorf("error %v, want ok %v", err, want.OK)
				}
			})
		case "flatten":
			t.Run(c.Name, func(t *testing.T) { flattenVector(t, in.Args[0], c.Expected) })
		}
	}
}

func memoryVector(t *testing.T, arg, expected json.RawMessage) {
	var text string
	decode(t, arg, &text)
	got, err := ParseMemory(text)
	var want int64
	if json.Unmarshal(expected, &want) != nil { // an object: an error
		if err == nil {
			t.Errorf("%q is %d, want an error", text, got)
		}
		return
	}
	if err != nil || got != want {
		t.Errorf("%q is %d, %v; want %d", text, got, err, want)
	}
}

func flattenVector(t *testing.T, arg, expected json.RawMessage) {
	j, err := DecodeJob([]byte(`{"_type":"static","name":"j","needs":[],"steps":`+string(arg)+`}`), "wf")
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	decode(t, expected, &want)
	for _, s := range Flatten(j.Steps) {
		got = append(got, s.Name)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
