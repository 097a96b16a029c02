package lifecycle

import (
	"testing"

	"kici/internal/core/ci"
)

// TestAnAnswerTellsWhoseTheJobIs is also about an agent that is taken for lost before its answer to a dispatch is read,
// because its node was silent. The job would be offered again while it runs if the answer changed nothing.
func TestAnAnswerTellsWhoseTheJobIs(t *testing.T) {
	tests := []struct {
		name   string
		row    *Row
		fenced bool
		op     RowOp // 0 when nothing changes
	}{
		{"in time", &Row{Status: ci.QueueDispatched, AgentID: "a", Unanswered: true}, false, RowAck},
		{"once more", &Row{Status: ci.QueueDispatched, AgentID: "a"}, false, 0},
		{"behind the loss", &Row{Status: ci.QueueRecovering, AgentID: "a", Unanswered: true}, false, RowReclaim},
		{"once more behind the loss", &Row{Status: ci.QueueRecovering, AgentID: "a"}, false, 0},
		{"of a former owner", &Row{Status: ci.QueueDispatched, AgentID: "b", Unanswered: true}, true, 0},
		{"after the end", &Row{Status: ci.QueueFailed, AgentID: "a"}, true, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			change, fenced := Acked("j", tt.row, "a")
			if fenced != tt.fenced || (change == nil) != (tt.op == 0) || change != nil && change.Op != tt.op {
				t.Errorf("fenced %v, change %+v", fenced, change)
			}
		})
	}
}
