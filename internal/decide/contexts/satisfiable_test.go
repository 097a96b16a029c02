package contexts

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

func TestBindingsThatCanNeverBeMet(t *testing.T) {
	on := func(c Context) *Context { c.Enabled = true; return &c }
	main, dev := on(Context{BranchRestrictions: []string{"main"}}), on(Context{BranchRestrictions: []string{"dev"}})
	tests := []struct {
		name  string
		bound []Bound
		want  string // "" = may be met
	}{
		{"missing before disabled", []Bound{{"a", &Context{}}, {"b", nil}}, "unsatisfiable environment binding: job 'deploy' binds environment 'b' which does not exist"},
		{"disabled", []Bound{{"a", main}, {"b", &Context{}}}, "unsatisfiable environment binding: job 'deploy' binds disabled environment 'b'"},
		{"branches", []Bound{{"a", main}, {"free", on(Context{})}, {"b", dev}},
			"unsatisfiable environment binding: job 'deploy' binds environments [a, b] with mutually exclusive branch restrictions (no value satisfies all bound environments)"},
		{"triggers", []Bound{{"a", on(Context{TriggerTypeFilters: []string{"push"}})}, {"b", on(Context{TriggerTypeFilters: []string{"tag"}})}},
			"unsatisfiable environment binding: job 'deploy' binds environments [a, b] with mutually exclusive trigger type filters (no value satisfies all bound environments)"},
		{"repositories", []Bound{{"a", on(Context{RepoPatterns: []string{"x"}})}, {"b", on(Context{RepoPatterns: []string{"y"}})}},
			"unsatisfiable environment binding: job 'deploy' binds environments [a, b] with mutually exclusive repository patterns (no value satisfies all bound environments)"},
		{"one in common", []Bound{{"a", main}, {"b", on(Context{BranchRestrictions: []string{"dev", "main"}})}}, ""},
		{"the same twice", []Bound{{"a", main}, {"a", main}}, ""},
		{"a pattern proves nothing", []Bound{{"a", main}, {"b", dev}, {"c", on(Context{BranchRestrictions: []string{"r-*"}})}}, ""},
		{"nothing bound", nil, ""},
	}
	for _, tt := range tests {
		err := CheckBindings("deploy", tt.bound)
		if (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
			t.Errorf("%s: %v", tt.name, err)
		}
		var unsatisfiable *UnsatisfiableError
		if err != nil && !errors.As(err, &unsatisfiable) {
			t.Errorf("%s: error of type %T", tt.name, err)
		}
	}
}

func TestWhatCanNeverBeMetIsRejectedWheneverItIsAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := rapid.SliceOfN(rapid.Custom(genContext), 1, 3).Draw(t, "bound")
		d := Dispatch{Branch: rapid.SampledFrom([]string{"", "main", "dev", "x/y"}).Draw(t, "branch"), EventType: "push", Repository: "acme/app"}
		if err := CheckBindings("j", bound); err != nil && len(Rejections(bound, d)) == 0 {
			t.Fatalf("%v, but %+v passes", err, d)
		}
	})
}
