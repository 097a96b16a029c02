package cache

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"kici/internal/kit/blob"
	"kici/internal/server/store"
	"kici/internal/server/store/storetest"
)

func storeOf(t *testing.T) *store.DB { return storetest.SQLite(t) }

func TestBlobRouteAnswers(t *testing.T) {
	r := fileRig(t, storeOf(t))
	put := r.saveLink("t1", "k")
	r.put(put, "tar")
	u := r.upload("t1", "k")
	get, err := r.Agents.ReadLink(t.Context(), u.path)
	r.must(err)
	none, err := r.Agents.ReadLink(t.Context(), "none/x")
	r.must(err)
	folder, err := r.Agents.ReadLink(t.Context(), "cache/org")
	r.must(err)
	unasked, err := r.Agents.WriteLink(t.Context(), "cache/org/unasked")
	r.must(err)
	base, sig, _ := strings.Cut(get, "?sig=")
	root, _, _ := strings.Cut(get, blob.LinkRoute)
	root += strings.TrimSuffix(blob.LinkRoute, "/")
	tests := []struct {
		name, method, url, body string
		status                  int
		answer                  string
	}{
		{"reading", "GET", get, "", 200, "tar"},
		{"writing", "PUT", put, "again", 200, `{"ok":true}`},
		{"no signature", "GET", base, "", 401, `{"error":"Missing sig"}`},
		{"no signature for writing", "PUT", base, "x", 401, `{"error":"Missing sig"}`},
		{"a signature for reading", "PUT", get, "x", 401, `{"error":"Invalid token (bad-signature)"}`},
		{"a signature for writing", "GET", put, "", 401, `{"error":"Invalid token (bad-signature)"}`},
		{"half a signature", "GET", base + "?sig=12", "", 401, `{"error":"Invalid token (malformed)"}`},
		{"an old signature", "GET", base + "?sig=12" + sig[strings.IndexByte(sig, '.'):], "", 401, `{"error":"Invalid token (expired)"}`},
		{"no key", "GET", root + "/?sig=" + sig, "", 400, `{"error":"Invalid key"}`},
		{"no key and no slash", "GET", root + "?sig=" + sig, "", 400, `{"error":"Invalid key"}`},
		{"a NUL", "GET", root + "/a%00b?sig=" + sig, "", 400, `{"error":"Invalid key"}`},
		{"an empty segment", "GET", root + "/a//b?sig=" + sig, "", 400, `{"error":"Invalid key segment"}`},
		{"a dot", "GET", root + "/a/%2e/b?sig=" + sig, "", 400, `{"error":"Invalid key segment"}`},
		{"two dots", "PUT", root + "/a/%2e%2e/b?sig=" + sig, "x", 400, `{"error":"Invalid key segment"}`},
		{"a bad key without a signature", "GET", root + "/a//b", "", 400, `{"error":"Invalid key segment"}`},
		{"nothing there", "GET", none, "", 404, `{"error":"Not found"}`},
		{"a folder", "GET", folder, "", 404, `{"error":"Not found"}`},
		{"no body", "PUT", put, "", 400, `{"error":"Missing body"}`},
		{"too much", "PUT", put, strings.Repeat("x", 1001), 413, `{"error":"Body exceeds the limit of 1000 bytes"}`},
		{"an upload that nobody began", "PUT", unasked, "x", 410, `{"error":"The upload has ended"}`},
		{"another method", "POST", put, "x", 405, `{"error":"Method not allowed"}`},
	}
	for _, tt := range tests {
		status, answer := r.send(tt.method, tt.url, tt.body)
		if status != tt.status || strings.TrimSpace(answer) != tt.answer {
			t.Errorf("%s: %d %s, want %d %s", tt.name, status, answer, tt.status, tt.answer)
		}
	}
	if _, content := r.send("GET", get, ""); content != "again" {
		t.Errorf("what was refused changed the content to %q", content)
	}
}

func TestABodyOfUnknownLengthIsBoundedWhileItComes(t *testing.T) {
	r := fileRig(t, storeOf(t))
	link := r.saveLink("t1", "k")
	for _, tt := range []struct {
		size   int
		status int
	}{{1000, 200}, {1001, 413}} {
		req, err := http.NewRequestWithContext(t.Context(), "PUT", link, io.MultiReader(strings.NewReader(strings.Repeat("x", tt.size))))
		r.must(err)
		resp, err := http.DefaultClient.Do(req)
		r.must(err)
		resp.Body.Close()
		if resp.StatusCode != tt.status || req.ContentLength > 0 {
			t.Errorf("%d bytes: %d", tt.size, resp.StatusCode)
		}
	}
}

func TestAnUploadThatBreaksOffLeavesNothing(t *testing.T) {
	r := fileRig(t, storeOf(t))
	link := r.saveLink("t1", "k")
	broken, writer := io.Pipe()
	req, err := http.NewRequestWithContext(t.Context(), "PUT", link, broken)
	r.must(err)
	go func() {
		writer.Write([]byte("half"))
		writer.CloseWithError(io.ErrUnexpectedEOF)
	}()
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		t.Errorf("answered %d", resp.StatusCode)
	}
	if list := r.blobs(); len(list) != 0 {
		t.Errorf("left: %v", list)
	}
}

func TestNoBrowserTakesABlobForAPage(t *testing.T) {
	r := fileRig(t, storeOf(t))
	r.must(r.keep("t1", "page.html", "<script>"))
	_, link, err := r.ArtifactLink(t.Context(), "rt1", "page.html")
	r.must(err)
	req, err := http.NewRequestWithContext(t.Context(), "GET", r.absolute(link), nil)
	r.must(err)
	resp, err := http.DefaultClient.Do(req)
	r.must(err)
	defer resp.Body.Close()
	for name, want := range map[string]string{"Content-Type": "application/octet-stream", "Content-Disposition": "attachment",
		"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox", "Content-Length": "8", "Cache-Control": "private, no-store"} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func FuzzRouteKey(f *testing.F) {
	for _, seed := range []string{"a/b", "", "/", "a//b", "../x", "a/..", "a\x00", "a/./b", ".put/x", "a..b"} {
		f.Add(blob.LinkRoute + seed)
	}
	f.Fuzz(func(t *testing.T, path string) {
		key, wrong := routeKey(path)
		if (key == "") == (wrong == "") {
			t.Fatalf("%q: key %q, wrong %q", path, key, wrong)
		}
		if wrong != "" {
			return
		}
		if blob.LinkRoute+key != path {
			t.Errorf("%q: key %q", path, key)
		}
		for _, segment := range strings.Split(key, "/") {
			if segment == "" || segment == "." || segment == ".." || strings.Contains(segment, "\x00") {
				t.Errorf("%q: segment %q", path, segment)
			}
		}
	})
}
