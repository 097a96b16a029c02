package pipeline

import (
	"strconv"
	"strings"

	"github.com/google/uuid"

	"kici/internal/core/lockfile"
)

// runSpace keeps ids of runs apart from every other use of names as ids.
var runSpace = uuid.MustParse("5f0e6d0e-4f52-4c0a-9c33-6f1f0c1b7a01")

// runID follows from the delivery and the workflow, so that a delivery that is worked on twice means the same runs. The
// time of receipt tells two claims of one delivery id apart: a redelivery after the first claim has expired starts anew.
func (e *evaluation) runID(w lockfile.Workflow) string {
	parts := []string{e.d.ID, strconv.FormatInt(e.d.ReceivedAt, 10), e.d.SourceID, w.Name}
	if w.Source != nil {
		parts = append(parts, w.Source.File, w.Source.Export)
	}
	return derive(runSpace, parts...)
}

func derive(space uuid.UUID, parts ...string) string {
	return uuid.NewSHA1(space, []byte(strings.Join(parts, "\x00"))).String()
}
