//go:build unix

package runner

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// artifactServer answers for the agent and takes what is put.
type artifactServer struct {
	*cacheServer
	names map[string]string // of committed artifacts, by upload
	sizes map[string]int64  // as they were announced
	limit int64
}

func newArtifactServer(t *testing.T) *artifactServer {
	return &artifactServer{cacheServer: newCacheServer(t), names: map[string]string{}, sizes: map[string]int64{}, limit: 1 << 20}
}

func (s *artifactServer) answer(r Request) any {
	a := Response{Type: TypeArtifactResponse, RequestID: r.RequestID}
	switch {
	case r.Op == "commit":
		s.names[r.UploadID] = fmt.Sprintf("%d %s", r.SizeBytes, r.SHA256)
	case r.Name == "refused":
		a.Error = "The run has 50 artifacts already"
	default:
		s.sizes[r.Name] = r.SizeBytes
		a.UploadID, a.UploadURL, a.MaxBytes = r.Name, s.URL+"/"+r.Name, s.limit
	}
	return a
}

// contents lists the names, and contents or link targets, of a gzipped tar.
func contents(t *testing.T, archive []byte) (list []string) {
	t.Helper()
	gz, err := gzip.NewReader(bytes.NewReader(archive))
	must(t, err)
	for r := tar.NewReader(gz); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return list
		}
		must(t, err)
		raw, err := io.ReadAll(r)
		must(t, err)
		list = append(list, h.Name+"="+string(raw)+h.Linkname)
	}
}

// artifactStep is a workflow with one step that uploads.
func artifactStep(t *testing.T, host string, s *artifactServer, body string) *job {
	t.Helper()
	j := prepare(t, host, workflow("step('up', async (ctx) => {\n"+body+"\n})"))
	j.answer = s.answer
	j.execute(nil)
	return j.wait()
}

func TestAStepUploadsArtifacts(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		s := newArtifactServer(t)
		j := artifactStep(t, host, s, `
  await ctx.$`+"`mkdir -p dist/sub && printf one > dist/a.js && printf two > dist/sub/b.js && printf map > dist/a.js.map && ln -s a.js dist/link && printf x > dist/.hidden`"+`;
  await ctx.$`+"`printf '\\\\x00\\\\xff' > raw && : > empty`"+`;
  const up = (name, paths) => ctx.artifacts.upload({ name, paths });
  return { file: await up('report', 'dist/a.js'), empty: await up('nothing', './empty'), raw: await up('raw', ['raw']),
    folder: await up('folder', 'dist'), pattern: await up('js.tgz', ['dist/**/*', '!**/*.map', '!dist/sub']) };`)
		j.succeeded()
		for name, want := range map[string]string{"/report": "one", "/nothing": "", "/raw": "\x00\xff"} {
			if got, ok := s.blobs[name]; !ok || string(got) != want {
				t.Errorf("%s is %q", name, got)
			}
		}
		for name, want := range map[string][]string{
			"/folder.tar.gz": {"dist/.hidden=x", "dist/a.js=one", "dist/a.js.map=map", "dist/link=a.js", "dist/sub/b.js=two"},
			"/js.tgz":        {"dist/a.js=one", "dist/link=a.js"},
		} {
			if d := cmp.Diff(want, contents(t, s.blobs[name])); d != "" {
				t.Errorf("%s: %s", name, d)
			}
		}
		const one = "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed" // of "one"
		if got := s.names["report"]; got != "3 "+one || s.sizes["report"] != 3 || s.sizes["folder.tar.gz"] != -1 {
			t.Errorf("announced %v, committed %q", s.sizes, got)
		}
		var out struct{ File, Pattern struct{ Name, SHA256 string } }
		must(t, (Message{Raw: j.Complete.Outputs["up"]}).Decode(&out))
		if out.File.Name != "report" || out.File.SHA256 != one || out.Pattern.Name != "js.tgz" {
			t.Errorf("the step was told %s", j.Complete.Outputs["up"])
		}
		if !strings.Contains(j.log(0), "[kici] artifact 'report': 1 file, 3 bytes") {
			t.Errorf("log %s", j.log(0))
		}
	})
}

func TestAStepIsToldWhyAnArtifactIsNotTaken(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		s := newArtifactServer(t)
		s.limit = 10
		outside := t.TempDir()
		must(t, os.WriteFile(filepath.Join(outside, "passwd"), []byte("secret"), 0o600))
		j := artifactStep(t, host, s, `
  await ctx.$`+"`mkdir -p dist bad && printf 0123456789a > dist/big && ln -s "+outside+" out && ln -s "+outside+"/passwd bad/passwd && ln -s ../../etc bad/up`"+`;
  const up = (name, paths) => ctx.artifacts.upload({ name, paths }).then(() => 'taken', (e) => e.message);
  return [await up('', 'x'), await up('n', []), await up('n', 'nowhere'), await up('n', 'no/*.xml'), await up('n', '../x'), await up('n', '`+outside+`/passwd'),
    await up('n', 'out/passwd'), await up('n', 'out'), await up('n', 'out/*'), await up('n', 'bad'), await up('n', ['dist', '!dist/*']), await up('n', '!dist'), await up('n', 'dist/big'),
    await up('n', 'dist'), await up('refused', ['dist']), await up('refused', 'dist/big')];`)
		j.succeeded()
		want := []string{"artifacts.upload needs a name", "artifacts.upload 'n': paths must be a path or a list of paths",
			"artifact: there is no nowhere in the workspace", "artifact: nothing in the workspace fits no/*.xml", `artifact: "../x" lies outside of the workspace`,
			`artifact: "` + outside + `/passwd" lies outside of the workspace`,
			"artifact: out/passwd cannot be taken from the workspace: statat out/passwd: path escapes from parent",
			"artifact: out cannot be taken from the workspace: statat out: path escapes from parent",
			"artifact: nothing in the workspace fits out/*", "artifact: bad/ is a link that leads out of the workspace",
			"artifact: all that dist, !dist/* finds is taken out again", "artifact: there is no path of what to upload",
			"artifact: it has more than 11 bytes; at most 10 can be kept here", "artifact: pack: it has more than 10 bytes; at most 10 can be kept here",
			"artifact: pack: it has more than 10 bytes; at most 10 can be kept here", "artifact 'refused': The run has 50 artifacts already"}
		var got []string
		must(t, (Message{Raw: j.Complete.Outputs["up"]}).Decode(&got))
		for i, text := range got {
			got[i] = strings.NewReplacer("bad/passwd", "bad/", "bad/up", "bad/").Replace(text) // whichever is found first
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		if len(s.names) != 0 {
			t.Errorf("committed %v", s.names)
		}
	})
}

// Two steps that have one name by mistake must not lose the result of one of them; a step that is tried again has to be
// able to succeed.
func TestANameBelongsToOneStep(t *testing.T) {
	onBothHosts(t, func(t *testing.T, host string) {
		s := newArtifactServer(t)
		j := prepare(t, host, workflow(`step('retried', { retry: { maxAttempts: 2, delayMs: 1 }, run: async (ctx) => {
  await ctx.$`+"`test -f f && printf second > f || printf first > f`"+`;
  await ctx.artifacts.upload({ name: 'n', paths: 'f' });
  if ((await ctx.artifacts.upload({ name: 'n', paths: 'f' }).catch((e) => e.message)) !== "artifact 'n' has been uploaded already, by step 'retried'") throw new Error('twice');
  await ctx.$`+"`grep -q second f`"+`;
} }), step('other', async (ctx) => ({ text: await ctx.artifacts.upload({ name: 'n', paths: 'f' }).catch((e) => e.message) }))`))
		j.answer = s.answer
		j.execute(nil)
		j.wait().succeeded()
		if got := string(s.blobs["/n"]); got != "second" {
			t.Errorf("kept %q", got)
		}
		equalJSON(t, j.Complete.Outputs["other"], `{"text":"artifact 'n' has been uploaded already, by step 'retried'"}`)
	})
}

func TestTheNameOfAnArtifactIsMaskedAndItsBytesAreNot(t *testing.T) {
	s := newArtifactServer(t)
	j := prepare(t, "embedded", workflow(`step('up', async (ctx) => {
  await ctx.$`+"`printf hunter22 > f`"+`;
  await ctx.artifacts.upload({ name: 'with hunter22', paths: 'f' });
})`))
	j.answer = s.answer
	j.execute(map[string]any{"secrets": map[string]string{"PASSWORD": "hunter22"}})
	j.wait().succeeded()
	if _, ok := s.sizes["with ***"]; !ok || !slices.ContainsFunc([]string{"/with ***", "/with%20***"}, func(p string) bool { return string(s.blobs[p]) == "hunter22" }) {
		t.Errorf("asked for %v, put %v", s.sizes, s.blobs)
	}
}

func TestAnUploadIsTriedAgainWhenTheServerHasTrouble(t *testing.T) {
	root := t.TempDir()
	must(t, os.WriteFile(filepath.Join(root, "f"), []byte("content"), 0o600))
	for name, tt := range map[string]struct {
		status, calls int
		fails         bool
	}{
		"trouble":   {503, 2, false},
		"a refusal": {413, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			var calls atomic.Int64
			var got []byte
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got, _ = io.ReadAll(r.Body)
				if calls.Add(1) == 1 {
					w.WriteHeader(tt.status)
				}
			}))
			defer web.Close()
			d := &privateDirs{}
			_, err := d.putArtifact(t.Context(), artifactSpec{Root: root, Paths: []string{"f"}, URL: web.URL + "/secret-link", MaxBytes: 7})
			if (err != nil) != tt.fails || int(calls.Load()) != tt.calls || string(got) != "content" {
				t.Errorf("%d calls, %q, %v", calls.Load(), got, err)
			}
			if err != nil && strings.Contains(err.Error(), "secret-link") {
				t.Errorf("the error names the link: %v", err)
			}
		})
	}
}

func TestPickingStopsWithTheJob(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	root := t.TempDir()
	must(t, os.WriteFile(filepath.Join(root, "f"), nil, 0o600))
	if _, err := pick(ctx, root, []string{"**"}); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v", err)
	}
}

func TestTheRepositoryItselfIsNoPartOfAnArtifact(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{".git/config", "sub/.git/config", "a"} {
		must(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755))
		must(t, os.WriteFile(filepath.Join(root, name), nil, 0o600))
	}
	got, err := pick(t.Context(), root, []string{"."})
	must(t, err)
	if d := cmp.Diff([]string{"a", "sub/.git/config"}, got.files); d != "" {
		t.Error(d)
	}
	again, err := pick(t.Context(), root, []string{root, "a"})
	must(t, err)
	if d := cmp.Diff(got.files, again.files); d != "" {
		t.Error(d)
	}
}
