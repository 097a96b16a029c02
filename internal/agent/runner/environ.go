package runner

import (
	"slices"
	"strings"
)

// inherited are the only variables that a job takes over from who runs it: what programs need to find their way, and
// nothing that could be a credential.
var inherited = strings.Fields(`PATH HOME USER SHELL LANG LC_ALL TERM TMPDIR NODE_PATH TZ PATHEXT SystemRoot windir
COMSPEC TEMP TMP USERPROFILE LOCALAPPDATA APPDATA PROCESSOR_ARCHITECTURE NUMBER_OF_PROCESSORS`)

// Inherited gives what a runner's environment takes over from that of its parent, NAME=value.
func Inherited(environ []string) []string {
	var list []string
	for _, kv := range environ {
		if name, _, ok := strings.Cut(kv, "="); ok && slices.Contains(inherited, name) {
			list = append(list, kv)
		}
	}
	return list
}
