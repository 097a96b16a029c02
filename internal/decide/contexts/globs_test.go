package contexts

import (
	"encoding/json"
	"errors"
	"testing"

	"kici/internal/vectors"
)

func TestVectorsScopesOfGlobs(t *testing.T) {
	for _, c := range vectors.LoadKind(t, "globs.json", "scope") {
		t.Run(c.Name, func(t *testing.T) {
			var in struct{ Scope, Pattern string }
			var want bool
			if err := errors.Join(json.Unmarshal(c.Input, &in), json.Unmarshal(c.Expected, &want)); err != nil {
				t.Fatal(err)
			}
			if got, err := MatchScope(in.Pattern, in.Scope); err != nil || got != want {
				t.Errorf("%v, %v; want %v", got, err, want)
			}
		})
	}
}
