package lockfile

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
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

// Files are hashed as the text that a decoder of UTF-8 finds in them, so that a picture among the hash files and a comment
// of an old editor have one hash everywhere. What is wanted is hashed here by itself.
func TestHashesCoverTheDecodedText(t *testing.T) {
	hashed := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	const malformed = "\xff\xd8 \xe2\x82\xff \xe2\x82 \xed\xa0\x80"
	const text = "\uFFFD\uFFFD \uFFFD\uFFFD \uFFFD \uFFFD\uFFFD\uFFFD"
	digest, _, err := AssetDigest(fstest.MapFS{"a.png": {Data: []byte(malformed)}}, []string{"*.png"})
	if err != nil || digest != "a.png\n"+text {
		t.Errorf("digest %q, %v", digest, err)
	}
	for _, c := range []struct{ name, got, want string }{
		{"source", WorkflowHash("\ufeff"+malformed+"\r\n", 5, ""), hashed("5:\ufeff" + text + "\n")},
		{"assets as a compiler has them", WorkflowHash("x", 5, digest), hashed("5:x\x00a.png\n" + text)},
		{"assets as an agent reads them", WorkflowHash("x", 5, "a.png\n"+malformed), hashed("5:x\x00a.png\n" + text)},
		{"lock of packages", DepLockHash("npm", malformed+"\r\n"), hashed("npm\n" + text + "\r\n")},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.name, c.got, c.want)
		}
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
