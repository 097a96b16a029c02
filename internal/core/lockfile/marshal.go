package lockfile

import (
	"encoding/json"
	"fmt"

	"kici/internal/kit/jsontree"
)

// Marshal writes the document as the compiler does: fixed key order, two spaces, no newline at the end, members without
// a value left out.
func Marshal(f *File) ([]byte, error) {
	raw, err := json.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("marshal lock file: %w", err)
	}
	n, err := jsontree.Parse(string(raw))
	if err != nil {
		return nil, fmt.Errorf("marshal lock file: %w", err)
	}
	return n.Append(nil, "  "), nil
}
