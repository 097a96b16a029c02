package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAJobsOwnContextsGoOverThoseOfItsWorkflow(t *testing.T) {
	tests := []struct {
		name                string
		workflow, own, want []string
	}{
		{"none of the workflow's", nil, []string{"a", "b"}, []string{"a", "b"}},
		{"none of its own", []string{"w"}, nil, []string{"w"}},
		{"both", []string{"w", "v"}, []string{"a", "b"}, []string{"w", "v", "a", "b"}},
		{"one that both name", []string{"w", "b"}, []string{"b", "a"}, []string{"w", "b", "a"}},
	}
	for _, tt := range tests {
		s := WorkflowSecrets{Contexts: tt.workflow}
		if diff := cmp.Diff(tt.want, s.MergeOrder(s.bind(tt.own))); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
	if got := (WorkflowSecrets{Contexts: []string{"w"}}).MergeOrder(nil); len(got) > 0 {
		t.Errorf("a job that works for others has contexts %q", got)
	}
}
