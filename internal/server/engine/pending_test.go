package engine_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/decide/contexts"
	"kici/internal/server/engine"
	"kici/internal/server/store"
)

func TestAPendingHoldNamesEveryContextThatItsReleaseAsksAgain(t *testing.T) {
	each(t, func(b *bench) {
		reviewed := contexts.Context{RequiredReviewers: []string{"anna"}}
		b.guard(fakeContexts{"shared": {}, "prod": reviewed, "base": {}})
		b.plan("job", nil, `,"contexts":["base"]`, lockJob("deploy", `,"environments":[{"value":"shared","dynamic":false},{"value":"prod","dynamic":false}]`))
		b.plan("install", nil, `,"installEnv":["base:TOKEN","prod:TOKEN"]`, lockJob("build", ""))
		b.plan("author", nil, "", lockJob("ask", approval)) // no context asks for it
		b.plan("decided", nil, `,"installEnv":["prod:TOKEN"]`, lockJob("build", ""))
		b.decide(b.hold("decided"), "anna", contexts.Approve)
		var got [][]string
		b.must(b.db.Write(t.Context(), func(ctx context.Context, tx *store.Tx) (err error) {
			got, err = engine.PendingHolds(ctx, tx, "default")
			return err
		}))
		if len(got) == 2 && len(got[0]) < len(got[1]) {
			got[0], got[1] = got[1], got[0] // they come in no order
		}
		if diff := cmp.Diff([][]string{{"shared", "prod", "base", "shared"}, {"base", "prod", "base"}}, got); diff != "" {
			t.Error(diff)
		}
	})
}
