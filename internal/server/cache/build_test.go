package cache

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/wire"
)

var depsHash = strings.Repeat("d", 64)

// build uploads what a build job packs.
func (r *rig) build(job, kind, content string) error {
	r.t.Helper()
	answer, err := r.BuildUpload(r.t.Context(), owned(job), wire.CacheUploadRequest{CacheType: kind,
		ContentHash: "c0ffee", LockfileHash: "1ock", Platform: "linux", Arch: "x64"})
	r.must(err)
	r.send("PUT", answer.UploadURL, content)
	return r.BuildUploaded(r.t.Context(), owned(job), wire.CacheUploadComplete{CacheType: kind,
		ContentHash: "c0ffee", LockfileHash: "1ock", Platform: "linux", Arch: "x64", DepsHash: depsHash})
}

// built is the content of what the cache has of a build for a job, and the hash of the dependencies.
func (r *rig) built(job string) (source, deps, hash string) {
	r.t.Helper()
	b, err := r.Built(r.t.Context(), r.jobs[job], Build{ContentHash: "c0ffee", LockfileHash: "1ock", Platform: "linux", Arch: "x64"})
	r.must(err)
	for link, content := range map[string]*string{b.SourceURL: &source, b.DepsURL: &deps} {
		if link != "" {
			_, *content = r.send("GET", link, "")
		}
	}
	return source, deps, b.DepsHash
}

func TestWhatABuildPacksIsThereForLaterRuns(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.must(r.build("b1", kindSource, "sources"))
		if source, deps, _ := r.built("t2"); source != "sources" || deps != "" {
			t.Errorf("%q %q", source, deps)
		}
		r.must(r.build("b1", kindDeps, "modules"))
		if source, deps, hash := r.built("t2"); source != "sources" || deps != "modules" || hash != depsHash {
			t.Errorf("%q %q %q", source, deps, hash)
		}
		if d := cmp.Diff(Stats{SourceHits: 2, DepsHits: 1, DepsMisses: 1}, r.Stats()); d != "" {
			t.Error(d)
		}
	})
}

func TestBuildsOfStrangersStayTheirOwn(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.must(r.build("bu", kindSource, "of a stranger"))
		for job, want := range map[string]string{"u1": "of a stranger", "u2": "", "t1": "", "o1": ""} {
			if source, _, _ := r.built(job); source != want {
				t.Errorf("%s: %q", job, source)
			}
		}
		r.must(r.build("b1", kindSource, "of a trusted run"))
		for job, want := range map[string]string{"u1": "of a stranger", "u2": "of a trusted run", "t1": "of a trusted run", "o1": ""} {
			if source, _, _ := r.built(job); source != want {
				t.Errorf("%s: %q", job, source)
			}
		}
	})
}

func TestDependenciesAreOfOnePlatform(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.must(r.build("b1", kindDeps, "modules"))
		for _, b := range []Build{{LockfileHash: "1ock", Platform: "linux", Arch: "arm64"}, {LockfileHash: "other", Platform: "linux", Arch: "x64"}, {}} {
			if got, err := r.Built(t.Context(), r.jobs["t1"], b); err != nil || got != (Built{}) {
				t.Errorf("%+v: %+v, %v", b, got, err)
			}
		}
	})
}

func TestOnlyABuildJobUploadsAndOnlyItsOwn(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		tests := []struct {
			name string
			m    wire.CacheUploadRequest
			code string
		}{
			{"an ordinary job", wire.CacheUploadRequest{JobID: "t1", CacheType: kindSource, ContentHash: "c0ffee"}, ReasonNotItsOwn},
			{"another source", wire.CacheUploadRequest{JobID: "b1", CacheType: kindSource, ContentHash: "bad"}, ReasonNotItsOwn},
			{"no source", wire.CacheUploadRequest{JobID: "b1", CacheType: kindSource}, ReasonNotItsOwn},
			{"another lock file", wire.CacheUploadRequest{JobID: "b1", CacheType: kindDeps, LockfileHash: "bad", Platform: "linux", Arch: "x64"}, ReasonNotItsOwn},
			{"another platform", wire.CacheUploadRequest{JobID: "b1", CacheType: kindDeps, LockfileHash: "1ock", Platform: "win32", Arch: "x64"}, ReasonNotItsOwn},
			{"nobody", wire.CacheUploadRequest{JobID: "nobody", CacheType: kindSource, ContentHash: "c0ffee"}, ReasonUnknownJob},
		}
		for _, tt := range tests {
			answer, err := r.BuildUpload(t.Context(), owned(tt.m.JobID), tt.m)
			if answer != (wire.CacheUploadResponse{}) || !refused(err, tt.code) {
				t.Errorf("%s asks: %+v, %v", tt.name, answer, err)
			}
			err = r.BuildUploaded(t.Context(), owned(tt.m.JobID), wire.CacheUploadComplete{CacheType: tt.m.CacheType, ContentHash: tt.m.ContentHash,
				LockfileHash: tt.m.LockfileHash, Platform: tt.m.Platform, Arch: tt.m.Arch})
			if !refused(err, tt.code) {
				t.Errorf("%s confirms: %v", tt.name, err)
			}
		}
	})
}

func TestOfTwoBuildsTheFirstIsKept(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.must(r.build("b1", kindSource, "first"))
		r.must(r.build("b2", kindSource, "second"))
		if source, _, _ := r.built("t1"); source != "first" {
			t.Errorf("got %q", source)
		}
	})
}

func TestATarballThatIsTooLargeIsAMiss(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		err := r.build("b1", kindDeps, strings.Repeat("x", 1001))
		if !refused(err, ReasonNothingPut) && (!refused(err, ReasonTooLarge) || !strings.Contains(err.Error(), "Dep tarball exceeds max size: 1001 bytes > 1000 bytes limit")) {
			t.Errorf("got %v", err)
		}
		if _, deps, _ := r.built("t1"); deps != "" {
			t.Error("it is given out")
		}
		r.now += uploadGrace.Milliseconds()
		r.must(r.sweepOnce(t.Context()))
		if list := r.blobs(); len(list) != 0 {
			t.Errorf("left: %v", list)
		}
	})
}
