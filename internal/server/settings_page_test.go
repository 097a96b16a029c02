package server

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"kici/internal/kit/config"
)

var update = flag.Bool("update", false, "rewrite docs/settings.md")

const settingsPage = "../../docs/settings.md"

// settingsText is the page of settings, made of the settings themselves.
func settingsText() string {
	var b strings.Builder
	b.WriteString(`# Settings of the server

A setting comes from its flag, else from its variable, else from the YAML file (--config, KICI_CONFIG, or
/etc/kici/orchestrator.yaml when it is there), else it has its default. An unknown or wrong one stops the start, with a
line for each problem. In the file, the dots of a key stand for nesting.

| Key | Variable | Default | What |
|---|---|---|---|
`)
	for _, s := range config.Describe(&Config{}) {
		names := "`" + strings.Join(s.Env, "`, `") + "`"
		if s.Flag != "" {
			names += ", `--" + s.Flag + "`"
		}
		value := s.Default
		if value == "" {
			value = "–"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", s.Key, names, value, strings.ReplaceAll(s.Help, "|", `\|`))
	}
	return b.String()
}

func TestSettingsPageIsCurrent(t *testing.T) {
	want := settingsText()
	if *update {
		if err := os.WriteFile(settingsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(settingsPage)
	if err != nil || string(got) != want {
		t.Errorf("docs/settings.md is not what the settings say (%v): run this test with -update", err)
	}
}
