package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kici/internal/core/ci"
)

func TestNumbersAreTheSameInBothForms(t *testing.T) {
	m := New("pause")
	m.Active.Add(2)
	m.Ended(ci.JobSuccess)
	m.StepEnded(ci.StepFailed, 2*time.Second)
	m.Pressed()
	m.LogBytes.Add(7)
	var out strings.Builder
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(out.String(), "# TYPE kici_agent_clone_duration_seconds")
	want := `# TYPE kici_agent_jobs_total counter
kici_agent_jobs_total{status="success"} 1
# TYPE kici_agent_jobs_active gauge
kici_agent_jobs_active 1
# TYPE kici_agent_steps_total counter
kici_agent_steps_total{status="failed"} 1
# TYPE kici_agent_step_duration_seconds histogram
kici_agent_step_duration_seconds_bucket{le="0.1"} 0
kici_agent_step_duration_seconds_bucket{le="1"} 0
kici_agent_step_duration_seconds_bucket{le="5"} 1
kici_agent_step_duration_seconds_bucket{le="30"} 1
kici_agent_step_duration_seconds_bucket{le="60"} 1
kici_agent_step_duration_seconds_bucket{le="300"} 1
kici_agent_step_duration_seconds_bucket{le="600"} 1
kici_agent_step_duration_seconds_bucket{le="1800"} 1
kici_agent_step_duration_seconds_bucket{le="+Inf"} 1
kici_agent_step_duration_seconds_sum 2
kici_agent_step_duration_seconds_count 1
`
	if diff := cmp.Diff(want, text); diff != "" {
		t.Error(diff)
	}
	for _, one := range m.Frame() {
		if !strings.Contains(out.String(), "# TYPE "+one.Name+" ") {
			t.Errorf("the text lacks %s", one.Name)
		}
	}
}
