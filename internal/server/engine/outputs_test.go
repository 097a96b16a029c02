package engine

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kici/internal/vectors"
)

func TestVectorsParseOutputsCell(t *testing.T) {
	for _, c := range vectors.LoadFunction(t, "run-aggregation.json", "parseOutputsCell") {
		t.Run(c.ID, func(t *testing.T) {
			var in struct{ Cell json.RawMessage }
			if err := json.Unmarshal(c.Input, &in); err != nil {
				t.Fatal(err)
			}
			cell := string(in.Cell) // the column is a text: an object stands there as it would be written
			var text string
			if json.Unmarshal(in.Cell, &text) == nil && text != "" {
				cell = text
			}
			got := storedOutputs(cell)
			if got == nil {
				got = json.RawMessage("null")
			}
			var w, g any
			if err := errors.Join(json.Unmarshal(c.Expected, &w), json.Unmarshal(got, &g)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(w, g); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
