package lockfile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"kici/internal/vectors"
)

func TestVectorsAssetDigest(t *testing.T) {
	for _, c := range vectors.Load(t, "contenthash.json") {
		var in struct {
			Fn       string
			Patterns []string
			Files    map[string]string
		}
		decode(t, c.Input, &in)
		if in.Fn == "assetDigest" {
			t.Run(c.Name, func(t *testing.T) { assetDigestVector(t, in.Patterns, in.Files, c.Expected) })
		}
	}
}

// assetDigestVector lays the files out in a real folder; an expected null is an empty digest without paths.
func assetDigestVector(t *testing.T, patterns []string, files map[string]string, expected json.RawMessage) {
	dir := t.TempDir()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var want struct {
		AssetDigest   string
		ResolvedPaths []string
	}
	decode(t, expected, &want)
	digest, paths, err := AssetDigest(os.DirFS(dir), patterns)
	if err != nil || digest != want.AssetDigest {
		t.Errorf("digest %q, %v; want %q", digest, err, want.AssetDigest)
	}
	if diff := cmp.Diff(want.ResolvedPaths, paths, cmp.Comparer(func(a, b []string) bool { return len(a) == 0 && len(b) == 0 || cmp.Equal(a, b) })); diff != "" {
		t.Error(diff)
	}
}

func TestAssetDigestWalksOnlyWhatPatternsReach(t *testing.T) {
	fsys := fstest.MapFS{
		".kici/data/seed.txt": {Data: []byte("seed\n")},
		".kici/data/skip.txt": {Data: []byte("no")},
		".git/config":         {Data: []byte("no")},
		"src/a.ts":            {Data: []byte("a")},
		"src/deep/b.ts":       {Data: []byte("b\xff")},
	}
	tests := []struct {
		name     string
		patterns []string
		want     []string
	}{
		{"a dotted folder that is named", []string{".kici/data/*.txt", "!.kici/**/skip.txt"}, []string{".kici/data/seed.txt"}},
		{"overlapping bases", []string{"src/**/*.ts", "src/deep/*.ts", "./src/a.ts"}, []string{"src/a.ts", "src/deep/b.ts"}},
		{"one file", []string{"src/a.ts"}, []string{"src/a.ts"}},
		{"missing folder", []string{"nope/x/*.ts"}, nil},
		{"outside the repository", []string{"../x", "/etc/passwd"}, nil},
		{"only an exclusion", []string{"!src/**"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, paths, err := AssetDigest(fsys, tt.patterns)
			if diff := cmp.Diff(tt.want, paths); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
}
