package hub

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/core/wire"
	"kici/internal/server/cache"
	"kici/internal/server/engine"
)

func TestAJobIsToldWhyAnArtifactIsNotKept(t *testing.T) {
	full := &cache.Refusal{Reason: ci.Reason{Code: cache.ReasonQuota, Message: "the quota is used up"}}
	for name, tt := range map[string]struct {
		cache *fakeCache // nil: nothing keeps artifacts
		job   string
		text  string
	}{
		"no store":           {nil, "mine", "Artifact storage not configured on this orchestrator"},
		"a job of another":   {&fakeCache{}, "theirs", "this job is not owned by this agent"},
		"a refusal":          {&fakeCache{fail: full}, "mine", "the quota is used up"},
		"trouble of our own": {&fakeCache{fail: errors.New("dial 10.0.0.7: no route")}, "mine", "internal error"},
		"no trouble":         {&fakeCache{}, "mine", ""},
	} {
		t.Run(name, func(t *testing.T) {
			options := []option{}
			if tt.cache != nil {
				options = append(options, withCache(tt.cache))
			}
			b := newBench(t, options...)
			b.engine.give("a", "mine")
			p, _ := b.join(t, agent("a", wire.FeatureArtifacts))
			want := wire.ArtifactUploadResponse{RequestID: "1", Error: tt.text}
			if tt.text == "" {
				want = wire.ArtifactUploadResponse{RequestID: "1", UploadID: "u", UploadURL: "https://store/n", MaxBytes: 7}
			}
			p.send(wire.ArtifactUploadRequest{MessageID: "1", JobID: tt.job, Name: "n"})
			if d := cmp.Diff(want, expect[wire.ArtifactUploadResponse](p)); d != "" {
				t.Error(d)
			}
			p.send(wire.ArtifactCommitRequest{MessageID: "2", JobID: tt.job, UploadID: "u", SHA256: "07"})
			if d := cmp.Diff(wire.ArtifactCommitResponse{RequestID: "2", Error: tt.text}, expect[wire.ArtifactCommitResponse](p)); d != "" {
				t.Error(d)
			}
		})
	}
}

// The connection remembers for a moment that a job is its agent's. A commit in that moment must not count.
func TestAnAttemptThatWasGivenUpCommitsNothing(t *testing.T) {
	b := newBench(t, withCache(&fakeCache{}))
	b.engine.give("a", "j")
	p, _ := b.join(t, agent("a"))
	p.send(wire.ArtifactUploadRequest{MessageID: "1", JobID: "j", Name: "n"})
	expect[wire.ArtifactUploadResponse](p)
	b.engine.give("b", "j")
	p.send(wire.ArtifactCommitRequest{MessageID: "2", JobID: "j", UploadID: "u", SHA256: "07"})
	if got := expect[wire.ArtifactCommitResponse](p); got.Error != engine.ErrNotOwner.Error() {
		t.Errorf("answer %+v", got)
	}
	if d := cmp.Diff([]string{"connected a", "begin n run-of-j"}, b.engine.seen()); d != "" {
		t.Error(d)
	}
}
