package engine_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
	"kici/internal/server/engine"
)

func TestTheIdentityOfAJobIsThatOfItsRows(t *testing.T) {
	each(t, func(b *bench) {
		b.register("r", job{name: "a"})
		want := engine.JobIdentity{RunID: "r", JobID: "r/a", OrgID: "default", Provider: "local", Repo: "local/app", Ref: "main", SHA: "abc", Workflow: "ci"}
		for _, over := range []bool{false, true} {
			if over {
				b.run("agent-1", "r/a", ci.JobSuccess, "")
			}
			got, ok, err := b.e.JobIdentity(t.Context(), "r/a")
			b.must(err)
			want.Over = over
			if d := cmp.Diff(want, got); d != "" || !ok {
				t.Error(ok, d)
			}
		}
		if _, ok, err := b.e.JobIdentity(t.Context(), "nobody"); ok || err != nil {
			t.Errorf("a job that is none: %v, %v", ok, err)
		}
	})
}
