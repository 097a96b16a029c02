package cache

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// keep makes an artifact in one go.
func (r *rig) keep(job, name, content string) (Artifact, error) {
	r.t.Helper()
	link, err := r.BeginArtifact(r.t.Context(), job, name, int64(len(content)))
	if err != nil {
		return Artifact{}, err
	}
	r.put(link, content)
	return r.CommitArtifact(r.t.Context(), job, name, depsHash)
}

func TestArtifactsOfARunAreListedAndRead(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		for _, name := range []string{"report é.html", "Zeta", "../etc/passwd"} {
			if _, err := r.keep("t1", name, "content of "+name); err != nil {
				t.Fatal(err)
			}
		}
		list, err := r.Artifacts(t.Context(), "rt1")
		r.must(err)
		want := Artifact{RunID: "rt1", JobID: "t1", Name: "../etc/passwd", Size: int64(len("content of ../etc/passwd")), Hash: depsHash,
			CreatedAt: startTime, ExpiresAt: startTime + 30*24*3600*1000}
		if d := cmp.Diff(want, list[0]); d != "" || len(list) != 3 || list[1].Name != "Zeta" || list[2].Name != "report é.html" {
			t.Errorf("%v %s", list, d)
		}
		for _, a := range list {
			got, link, err := r.ArtifactLink(t.Context(), "rt1", a.Name)
			if err != nil || got != a {
				t.Errorf("%+v, %v", got, err)
			}
			if status, content := r.send("GET", r.absolute(link), ""); status != 200 || content != "content of "+a.Name {
				t.Errorf("%s: %d %q", a.Name, status, content)
			}
		}
		if _, _, err := r.ArtifactLink(t.Context(), "rt2", "Zeta"); !errors.Is(err, ErrNotFound) {
			t.Errorf("of another run: %v", err)
		}
		if list, err := r.Artifacts(t.Context(), ""); err != nil || len(list) != 0 {
			t.Errorf("of no run: %v, %v", list, err)
		}
	})
}

// absolute resolves a link for people as a client of the server does.
func (r *rig) absolute(link string) string {
	agents, err := r.Agents.ReadLink(r.t.Context(), "x")
	r.must(err)
	base, err := url.Parse(agents)
	r.must(err)
	to, err := base.Parse(link)
	r.must(err)
	return to.String()
}

func TestArtifactsAreRefusedWithAReason(t *testing.T) {
	each(t, func(t *testing.T, r *rig) { // 500 bytes each, 1000 in all, 3 of a run
		_, err := r.keep("t1", "a", strings.Repeat("a", 400))
		r.must(err)
		begin := func(job, name string, size int64) error {
			_, err := r.BeginArtifact(t.Context(), job, name, size)
			return err
		}
		for name, tt := range map[string]struct {
			err  error
			code string
		}{
			"the same name":         {begin("b1", "a", 1), ReasonExists}, // another job of the run
			"too large":             {begin("t1", "b", 501), ReasonTooLarge},
			"no name":               {begin("t1", "", 1), ReasonBadKey},
			"nobody":                {begin("nobody", "b", 1), ReasonUnknownJob},
			"the same in another":   {begin("t2", "a", 1), ""},
			"as large as it may be": {begin("t1", "b", 500), ""},
		} {
			if tt.code == "" && tt.err != nil || tt.code != "" && !refused(tt.err, tt.code) {
				t.Errorf("%s: %v", name, tt.err)
			}
		}
		_, err = r.keep("t2", "c", strings.Repeat("c", 400))
		r.must(err)
		if err := begin("u1", "d", 300); !refused(err, ReasonQuota) {
			t.Errorf("over the quota: %v", err)
		}
		for _, name := range []string{"b", "c"} {
			_, err := r.keep("t1", name, "x")
			r.must(err)
		}
		if err := begin("t1", "d", 1); !refused(err, ReasonTooMany) {
			t.Errorf("one too many: %v", err)
		}
	})
}

func TestACommitMeasuresWhatIsThere(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		if _, err := r.CommitArtifact(t.Context(), "t1", "a", ""); !refused(err, ReasonNothingPut) {
			t.Errorf("never begun: %v", err)
		}
		link, err := r.BeginArtifact(t.Context(), "t1", "a", 1)
		r.must(err)
		if _, err := r.CommitArtifact(t.Context(), "t1", "a", ""); !refused(err, ReasonNothingPut) {
			t.Errorf("never put: %v", err)
		}
		r.put(link, "more than was said")
		first, err := r.CommitArtifact(t.Context(), "t1", "a", "no hash")
		if err != nil || first.Size != 18 || first.Hash != "" {
			t.Errorf("got %+v, %v", first, err)
		}
		if again, err := r.CommitArtifact(t.Context(), "t1", "a", ""); err != nil || again != first {
			t.Errorf("again: %+v, %v", again, err)
		}
	})
}

func TestArtifactsExpireHoweverOftenTheyAreRead(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		_, err := r.keep("t1", "a", "x")
		r.must(err)
		r.now += 30*24*3600*1000 - 1
		_, _, err = r.ArtifactLink(t.Context(), "rt1", "a")
		r.must(err)
		r.now++
		if _, _, err := r.ArtifactLink(t.Context(), "rt1", "a"); !errors.Is(err, ErrNotFound) {
			t.Errorf("got %v", err)
		}
		if list, err := r.Artifacts(t.Context(), "rt1"); err != nil || len(list) != 0 {
			t.Errorf("got %v, %v", list, err)
		}
		_, err = r.keep("t1", "a", "anew")
		r.must(err)
	})
}
