package cache

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/wire"
)

// keep makes an artifact in one go.
func (r *rig) keep(job, name, content string) error {
	r.t.Helper()
	size := int64(len(content))
	place, err := r.place(job, name, &size)
	if err != nil {
		return err
	}
	r.put(place.UploadURL, content)
	return r.commit(job, place.UploadID, size)
}

// place asks where to put an artifact.
func (r *rig) place(job, name string, size *int64) (wire.ArtifactUploadResponse, error) {
	return r.BeginArtifact(r.t.Context(), owned(job), wire.ArtifactUploadRequest{Name: name, SizeBytes: size})
}

func (r *rig) commit(job, upload string, size int64) error {
	return r.CommitArtifact(r.t.Context(), owned(job), wire.ArtifactCommitRequest{UploadID: upload, SHA256: depsHash, SizeBytes: size})
}

// content reads an artifact as people do.
func (r *rig) content(run, name string) string {
	r.t.Helper()
	_, link, err := r.ArtifactLink(r.t.Context(), run, name)
	r.must(err)
	status, content := r.send("GET", r.absolute(link), "")
	if status != 200 {
		r.t.Fatalf("get %s: %d", name, status)
	}
	return content
}

func TestArtifactsOfARunAreListedAndRead(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		for _, name := range []string{"report é.html", "Zeta", "../etc/passwd"} {
			r.must(r.keep("t1", name, "content of "+name))
		}
		list, err := r.Artifacts(t.Context(), "rt1")
		r.must(err)
		want := Artifact{RunID: "rt1", JobID: "t1", Name: "../etc/passwd", Size: int64(len("content of ../etc/passwd")), Hash: depsHash,
			CreatedAt: startTime, ExpiresAt: startTime + 30*24*3600*1000}
		if d := cmp.Diff(want, list[0]); d != "" || len(list) != 3 || list[1].Name != "Zeta" || list[2].Name != "report é.html" {
			t.Errorf("%v %s", list, d)
		}
		for _, a := range list {
			got, _, err := r.ArtifactLink(t.Context(), "rt1", a.Name)
			if err != nil || got != a {
				t.Errorf("%+v, %v", got, err)
			}
			if content := r.content("rt1", a.Name); content != "content of "+a.Name {
				t.Errorf("%s: %q", a.Name, content)
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
		r.must(r.keep("t1", "a", strings.Repeat("a", 400)))
		begin := func(job, name string, size int64) error {
			_, err := r.place(job, name, &size)
			return err
		}
		for name, tt := range map[string]struct {
			err  error
			code string
		}{
			"the name of another job": {begin("b1", "a", 1), ReasonExists},
			"too large":               {begin("t1", "b", 501), ReasonTooLarge},
			"no name":                 {begin("t1", "", 1), ReasonBadKey},
			"nobody":                  {begin("nobody", "b", 1), ReasonUnknownJob},
			"the same in another run": {begin("t2", "a", 1), ""},
			"as large as it may be":   {begin("t1", "b", 500), ""},
		} {
			if tt.code == "" && tt.err != nil || tt.code != "" && !refused(tt.err, tt.code) {
				t.Errorf("%s: %v", name, tt.err)
			}
		}
		r.must(r.keep("t2", "c", strings.Repeat("c", 400)))
		if err := begin("u1", "d", 300); !refused(err, ReasonQuota) {
			t.Errorf("over the quota: %v", err)
		}
		for _, name := range []string{"b", "c"} {
			r.must(r.keep("t1", name, "x"))
		}
		if err := begin("t1", "d", 1); !refused(err, ReasonTooMany) {
			t.Errorf("one too many: %v", err)
		}
		if err := begin("t1", "a", 500); err != nil {
			t.Errorf("in the place of its own: %v", err)
		}
	})
}

func TestACommitMeasuresWhatIsThere(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		if err := r.commit("t1", "never begun", 0); !refused(err, ReasonNothingPut) {
			t.Errorf("never begun: %v", err)
		}
		place, err := r.place("t1", "a", nil)
		r.must(err)
		if place.MaxBytes != 500 {
			t.Errorf("an artifact of unknown size may have %d bytes", place.MaxBytes)
		}
		if err := r.commit("t1", place.UploadID, 0); !refused(err, ReasonNothingPut) {
			t.Errorf("never put: %v", err)
		}
		r.put(place.UploadURL, "all of it")
		if err := r.commit("b1", place.UploadID, 9); !refused(err, ReasonNothingPut) {
			t.Errorf("by another job: %v", err)
		}
		for range 2 { // a commit may come again
			r.must(r.commit("t1", place.UploadID, 9))
		}
		if list, err := r.Artifacts(t.Context(), "rt1"); err != nil || len(list) != 1 || list[0].Size != 9 || list[0].Hash != depsHash {
			t.Errorf("kept %+v, %v", list, err)
		}
		place, err = r.place("t1", "cut", nil)
		r.must(err)
		r.put(place.UploadURL, "half")
		if err := r.commit("t1", place.UploadID, 9); !refused(err, ReasonNothingPut) {
			t.Errorf("half of it: %v", err)
		}
	})
}

func TestAnEmptyFileIsAnArtifact(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.must(r.keep("t1", "empty", ""))
		if got := r.content("rt1", "empty"); got != "" {
			t.Errorf("got %q", got)
		}
	})
}

// What a job had put in a try before this one must not become its artifact, whoever still sends it.
func TestAJobReplacesItsOwnArtifactAndNothingElse(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.must(r.keep("t1", "a", "first try"))
		old, err := r.place("t1", "a", nil)
		r.must(err)
		r.put(old.UploadURL, "given up")
		place, err := r.place("t1", "a", nil)
		r.must(err)
		if err := r.commit("t1", old.UploadID, 8); !refused(err, ReasonNothingPut) {
			t.Errorf("what was given up for another: %v", err)
		}
		if got := r.content("rt1", "a"); got != "first try" {
			t.Errorf("before the commit it is %q", got)
		}
		r.put(place.UploadURL, "second try")
		r.must(r.commit("t1", place.UploadID, 10))
		if got := r.content("rt1", "a"); got != "second try" {
			t.Errorf("after the commit it is %q", got)
		}
		if list, err := r.Artifacts(t.Context(), "rt1"); err != nil || len(list) != 1 {
			t.Errorf("kept %+v, %v", list, err)
		}
	})
}

func TestAPlaceTakesNoMoreThanWasSaid(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		size := int64(4)
		place, err := r.place("t1", "a", &size)
		r.must(err)
		status, _ := r.send("PUT", place.UploadURL, "more than that")
		if err := r.commit("t1", place.UploadID, 14); err == nil || status == 200 && !refused(err, ReasonTooLarge) {
			t.Errorf("put %d, commit %v", status, err)
		}
	})
}

func TestArtifactsExpireHoweverOftenTheyAreRead(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.must(r.keep("t1", "a", "x"))
		r.now += 30*24*3600*1000 - 1
		_, _, err := r.ArtifactLink(t.Context(), "rt1", "a")
		r.must(err)
		r.now++
		if _, _, err := r.ArtifactLink(t.Context(), "rt1", "a"); !errors.Is(err, ErrNotFound) {
			t.Errorf("got %v", err)
		}
		if list, err := r.Artifacts(t.Context(), "rt1"); err != nil || len(list) != 0 {
			t.Errorf("got %v, %v", list, err)
		}
		r.must(r.keep("b1", "a", "anew"))
	})
}
