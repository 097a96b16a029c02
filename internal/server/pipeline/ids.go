package pipeline

import (
	"github.com/google/uuid"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
)

// runSpace keeps ids of runs apart from every other use of names as ids.
var runSpace = uuid.MustParse("5f0e6d0e-4f52-4c0a-9c33-6f1f0c1b7a01")

// runID follows from the delivery and the workflow, so that a delivery that is worked on twice means the same runs. The
// time of receipt tells two claims of one delivery id apart: a redelivery after the first claim has expired starts anew.
func (e *evaluation) runID(w lockfile.Workflow) string {
	names := []string{e.d.ID, e.d.SourceID, w.Name}
	if w.Source != nil {
		names = append(names, w.Source.File, w.Source.Export)
	}
	return ci.DeriveID(runSpace, e.d.ReceivedAt, names...)
}
