package lifecycle

import (
	"testing"

	"kici/internal/core/ci"
)

func TestABringUpIsNeedlessOnlyWhileNobodyHasIt(t *testing.T) {
	tests := []struct {
		name string
		job  Job
		want ci.JobStatus // "" when nothing changes
		row  RowOp
	}{
		{"in the queue", Job{Kind: ci.KindBringup, Status: ci.JobPending, Row: &Row{Status: ci.QueuePending}}, ci.JobSkipped, RowExpire},
		{"held", Job{Kind: ci.KindBringup, Status: ci.JobPending, Holds: 1}, ci.JobSkipped, 0},
		{"sent to an agent", Job{Kind: ci.KindBringup, Status: ci.JobPending, Row: &Row{Status: ci.QueueDispatched}}, "", 0},
		{"running", Job{Kind: ci.KindBringup, Status: ci.JobRunning, Row: &Row{Status: ci.QueueDispatched}}, "", 0},
		{"over", Job{Kind: ci.KindBringup, Status: ci.JobFailed}, "", 0},
		{"a job of the author's", Job{Kind: ci.KindStandard, Status: ci.JobPending}, "", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.job.ID = "up"
			o := Needless(tt.job, "web-3", 9)
			if tt.want == "" {
				if len(o.Jobs)+len(o.Rows) > 0 || o.Ignored == "" {
					t.Errorf("outcome %+v", o)
				}
				return
			}
			if len(o.Jobs) != 1 || o.Jobs[0].Status != tt.want || o.Jobs[0].Reason.Message != "agent web-3 has connected by itself" || o.Jobs[0].CloseHolds != (tt.job.Holds > 0) {
				t.Errorf("outcome %+v", o)
			}
			if (tt.row == 0) != (len(o.Rows) == 0) || tt.row != 0 && o.Rows[0].Op != tt.row {
				t.Errorf("rows %+v", o.Rows)
			}
		})
	}
}

func TestWhoWaitsForABringUpIsToldWhyItFailed(t *testing.T) {
	child := func(upstream string, status ci.JobStatus) Dependant {
		return Dependant{Job: Job{ID: "child", Status: ci.JobPending}, Edges: []Edge{{Upstream: upstream, Status: status, RunOn: []ci.JobStatus{ci.JobSuccess, ci.JobSkipped}}}}
	}
	failure := &ci.InitFailure{Message: "connection refused"}
	tests := []struct {
		name string
		a    Aftermath
		want string
	}{
		{"with its error", Aftermath{Job: Job{Name: "__bringup__ci__w", Kind: ci.KindBringup, Status: ci.JobFailed}, Failure: failure,
			Dependants: []Dependant{child("__bringup__ci__w", ci.JobFailed)}}, "upstream_unmet: __bringup__ci__w (failed): connection refused"},
		{"without", Aftermath{Job: Job{Name: "__bringup__ci__w", Kind: ci.KindBringup, Status: ci.JobCancelled},
			Dependants: []Dependant{child("__bringup__ci__w", ci.JobCancelled)}}, "upstream_unmet: __bringup__ci__w (cancelled)"},
		{"another need ended first", Aftermath{Job: Job{Name: "__bringup__ci__w", Kind: ci.KindBringup, Status: ci.JobFailed}, Failure: failure,
			Dependants: []Dependant{child("a", ci.JobFailed)}}, "upstream_unmet: a (failed)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := Ended(tt.a, 9)
			if len(o.Jobs) != 1 || o.Jobs[0].Status != ci.JobSkipped || o.Jobs[0].Reason.Message != tt.want {
				t.Errorf("outcome %+v, want %s", o, tt.want)
			}
		})
	}
}
