package vault

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"kici/internal/cli/console"
)

// value is where the value of a secret or a variable comes from, and what is done before it is stored.
type value struct {
	text          string // --value
	prompt, stdin bool
	file, env     string
	noTrim, dry   bool
	fingerprint   string
	cmd           *cobra.Command
}

// valueFlags give a verb the flags that say where its value comes from.
func valueFlags(cmd *cobra.Command) *value {
	v := &value{cmd: cmd}
	f := cmd.Flags()
	f.StringVar(&v.text, "value", "", "the value itself; others on this machine and the shell's history see it")
	f.BoolVar(&v.prompt, "prompt", false, "ask for it, without echo")
	f.BoolVar(&v.stdin, "from-stdin", false, "read all of stdin")
	f.StringVar(&v.file, "from-file", "", "read it from this file")
	f.StringVar(&v.env, "from-env", "", "take it from this variable")
	f.BoolVar(&v.noTrim, "no-trim", false, "keep the line end at the end of stdin or the file")
	f.BoolVar(&v.dry, "dry-run", false, "print its SHA-256 and length, and store nothing")
	f.StringVar(&v.fingerprint, "confirm-fingerprint", "", "store it only if its SHA-256 is this")
	return v
}

// read gives the value, ok=false when it is not to be stored. It is never printed.
func (a *admin) read(v *value, prompt string) (text string, ok bool, err error) {
	if text, err = a.source(v, prompt); err != nil {
		return "", false, err
	}
	sum := sha256.Sum256([]byte(text))
	print := hex.EncodeToString(sum[:])
	if v.fingerprint != "" && v.fingerprint != print {
		return "", false, fmt.Errorf("the value has the fingerprint %s and not the one that was given; nothing was stored", print)
	}
	if v.dry {
		fmt.Fprintf(a.Stdout, "%s %d\n", print, len(text))
		return "", false, nil
	}
	if text == "" {
		fmt.Fprintln(a.Stderr, "Warning: the value is empty")
	}
	return text, true, nil
}

func (a *admin) source(v *value, prompt string) (string, error) {
	var ways []string
	for _, flag := range []string{"value", "prompt", "from-stdin", "from-file", "from-env"} {
		if v.cmd.Flags().Changed(flag) {
			ways = append(ways, "--"+flag)
		}
	}
	if len(ways) > 1 {
		return "", console.Usage("%s: give one of them", strings.Join(ways, ", "))
	}
	_, terminal := console.Terminal(a.Stdin)
	switch {
	case slices.Contains(ways, "--value"):
		fmt.Fprintln(a.Stderr, "Warning: --value can be seen by other users of this machine; prefer --from-stdin or --from-file")
		return v.text, nil
	case slices.Contains(ways, "--from-env"):
		return a.fromEnv(v.env)
	case slices.Contains(ways, "--from-file"):
		return a.fromFile(v.file, v.noTrim)
	case v.prompt && !terminal:
		return "", console.Usage("--prompt needs a terminal")
	case v.stdin && terminal:
		return "", console.Usage("--from-stdin needs a pipe")
	}
	return a.ReadSecret(prompt, !v.noTrim)
}

func (a *admin) fromEnv(name string) (string, error) {
	for _, entry := range a.Environ {
		if text, found := strings.CutPrefix(entry, name+"="); found {
			return text, nil
		}
	}
	return "", fmt.Errorf("--from-env: there is no variable %s", name)
}

func (a *admin) fromFile(path string, noTrim bool) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("read the value: %w", err)
	}
	defer file.Close()
	return console.ReadValue(file, !noTrim)
}

// inOrg lets an organisation be named before the other arguments of a verb, as well as by --org.
func (a *admin) inOrg(args []string, normal int) []string {
	if len(args) > normal {
		a.Org, args = args[0], args[1:]
	}
	return args
}
