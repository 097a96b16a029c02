package engine

import (
	"encoding/json"

	"kici/internal/kit/jsontree"
)

// storedOutputs reads the outputs column of a job: nil for none, for an empty object, and for what is no JSON, which a
// dependant could do nothing with.
func storedOutputs(cell string) json.RawMessage {
	n, err := jsontree.Parse(cell)
	if err != nil || n.Kind == jsontree.Null || n.Kind == jsontree.Object && len(n.Items) == 0 {
		return nil
	}
	return json.RawMessage(cell)
}
