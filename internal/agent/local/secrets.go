package local

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"kici/internal/kit/config"
)

// Secrets are those of a local run. A job has those for every job and those of the contexts that it binds.
type Secrets struct {
	Common   map[string]string
	Contexts map[string]map[string]string
}

func (s Secrets) values() []string {
	var values []string
	for _, v := range s.Common {
		values = append(values, v)
	}
	for _, context := range s.Contexts {
		for _, v := range context {
			values = append(values, v)
		}
	}
	return values
}

// Put sets a secret; context "" is every job's. It is for secrets that LoadSecrets has given.
func (s *Secrets) Put(context, name, value string) {
	if context == "" {
		s.Common[name] = value
		return
	}
	if s.Contexts[context] == nil {
		s.Contexts[context] = map[string]string{}
	}
	s.Contexts[context][name] = value
}

// Of are the secrets of a job that binds the contexts: those for every job, over them those of the contexts in their order.
func (s Secrets) Of(contexts []string) map[string]string {
	secrets := maps.Clone(s.Common)
	if secrets == nil {
		secrets = map[string]string{}
	}
	for _, context := range contexts {
		maps.Copy(secrets, s.Contexts[context])
	}
	return secrets
}

// maxSecrets bounds a file of secrets, in bytes.
const maxSecrets = 1 << 20

// secretFiles are read in this order; what comes later wins.
var secretFiles = []struct {
	name string
	read func(s *Secrets, text string) error
}{
	{".env.local", (*Secrets).readEnv},
	{"secrets.yaml", (*Secrets).readYAML},
	{".secrets", (*Secrets).readINI},
}

// LoadSecrets reads the local secrets in the folder of workflows: .env.local with NAME=value for every job, secrets.yaml
// and .secrets with sections that are contexts. None of them need be there. An error names the file and the line, and
// quotes no value.
func LoadSecrets(dir string) (Secrets, error) {
	s := Secrets{Common: map[string]string{}, Contexts: map[string]map[string]string{}}
	for _, file := range secretFiles {
		path := filepath.Join(dir, file.name)
		info, err := os.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil && info.Size() > maxSecrets {
			err = fmt.Errorf("it has %d bytes, more than %d", info.Size(), maxSecrets)
		}
		var raw []byte
		if err == nil {
			raw, err = os.ReadFile(path)
		}
		if err == nil {
			err = file.read(&s, string(raw))
		}
		if err != nil {
			return Secrets{}, fmt.Errorf("read secrets in %s: %w", path, err)
		}
	}
	return s, nil
}

func (s *Secrets) readEnv(text string) error { return s.readLines(text, false) }

func (s *Secrets) readINI(text string) error { return s.readLines(text, true) }

// readLines reads NAME=value lines. A value may stand in quotes, which then are not part of it; # and ; begin a comment
// at the start of a line only, since a secret may hold them.
func (s *Secrets) readLines(text string, sections bool) error {
	context, number := "", 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == ';' {
			continue
		}
		if inner, ok := strings.CutPrefix(line, "["); ok && sections {
			if context, ok = strings.CutSuffix(inner, "]"); !ok || strings.TrimSpace(context) == "" {
				return fmt.Errorf("line %d: a section is written [context]", number)
			}
			context = strings.TrimSpace(context)
			continue
		}
		name, value, ok := strings.Cut(strings.TrimPrefix(line, "export "), "=")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return fmt.Errorf("line %d: expected NAME=value", number)
		}
		s.Put(context, name, unquote(strings.TrimSpace(value)))
	}
	return nil
}

func unquote(value string) string {
	if n := len(value); n >= 2 && (value[0] == '"' || value[0] == '\'') && value[n-1] == value[0] {
		return value[1 : n-1]
	}
	return value
}

// readYAML reads a mapping: texts are secrets of every job, mappings those of a context.
func (s *Secrets) readYAML(text string) error {
	doc, err := config.ParseYAML([]byte(text))
	if err != nil {
		return err
	}
	if doc.Kind == config.Null {
		return nil
	}
	if doc.Kind != config.Map {
		return fmt.Errorf("line %d: expected a mapping, found %s", doc.Line, doc.Kind)
	}
	for _, f := range doc.Fields {
		if f.Value.Kind != config.Map {
			if err := s.putNode("", f); err != nil {
				return err
			}
			continue
		}
		for _, inner := range f.Value.Fields {
			if err := s.putNode(f.Key, inner); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *Secrets) putNode(context string, f config.Field) error {
	switch f.Value.Kind {
	case config.Map, config.List, config.Null:
		return fmt.Errorf("line %d: secret %s must be a text, found %s", f.Line, f.Key, f.Value.Kind)
	case config.Bool, config.Int, config.Float, config.String:
	}
	s.Put(context, f.Key, f.Value.Text)
	return nil
}
