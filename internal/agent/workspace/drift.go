package workspace

import (
	"fmt"
	"os"
	"strings"

	"kici/internal/core/lockfile"
)

// DriftGate refuses a source that is not what the lock file was compiled from: contentHash is the hash the lock file
// states for the workflow in file, resolved are the further files that went into it, in order. An empty contentHash
// passes, since test runs compile what lies in the working tree. Paths are relative to root. Drift is a *DriftError.
func DriftGate(root, file, contentHash string, resolved []string) error {
	if contentHash == "" {
		return nil
	}
	// Links in the repository must not make the agent read outside of it.
	tree, err := os.OpenRoot(root)
	if err != nil {
		return fmt.Errorf("check workflow source: %w", err)
	}
	defer tree.Close()
	source, err := tree.ReadFile(file)
	if err != nil {
		return fmt.Errorf("check workflow source: %w", err)
	}
	var digest strings.Builder
	for _, path := range resolved {
		content, err := tree.ReadFile(path)
		if err != nil {
			content = nil // a file that cannot be read counts as an empty one, as it does when compiling
		}
		digest.WriteString(path + "\n" + string(content))
	}
	actual := lockfile.WorkflowHash(string(source), lockfile.CompileSchemaVersion, digest.String())
	if actual == contentHash {
		return nil
	}
	return &DriftError{File: file, Expected: contentHash, Actual: actual}
}

// DriftError says that the source of a workflow was changed without compiling it.
type DriftError struct {
	File             string
	Expected, Actual string // content hashes: what the lock file states, and what the source has
}

func (e *DriftError) Error() string {
	return fmt.Sprintf("Lock file is out of date: workflow source changed without regenerating kici.lock.json (expected contentHash %s, got %s in %s); "+
		"compile the workflows and commit the lock file", e.Expected, e.Actual, e.File)
}
