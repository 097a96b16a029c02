package vault

import (
	"encoding/json"

	"github.com/spf13/pflag"

	"kici/internal/cli/console"
)

// policyFlags are those that say the rules of a context.
func policyFlags(f *pflag.FlagSet) {
	f.String("enabled", "true", "true or false: jobs may use it")
	f.StringSlice("branches", nil, "globs of target branches that may use it; empty for all")
	f.String("branch-restrictions", "", "the same as a JSON list")
	f.StringSlice("trigger-types", nil, "globs of events that may use it; empty for all")
	f.StringSlice("repos", nil, "globs of repositories that may use it; empty for all")
	f.StringSlice("reviewers", nil, "ids of users who must all approve; empty for none")
	f.StringSlice("required-reviewers", nil, "the same as --reviewers")
	f.Int64("wait-timer", 0, "seconds that jobs wait before they start")
	f.Int64("hold-expiry", 0, "seconds after which a hold expires")
	f.Int64("concurrency-limit", 0, "jobs at a time")
	f.String("concurrency-strategy", "", "what a job does that finds no slot: queue, or cancel-pending for those that wait already")
	f.Int64("concurrency-timeout", 0, "milliseconds that a job waits for a slot")
	f.String("minimum-trust", "", "least trust in the contributor: known, trusted; empty or null for any")
	f.String("allow-local-execution", "false", "true or false: test runs may use it")
}

// typeFlags are those that say which names a context is.
func typeFlags(f *pflag.FlagSet) {
	f.String("type", "", "fixed or glob")
	f.String("glob", "", "the context is every name that this pattern matches")
	f.String("glob-pattern", "", "the same as --glob")
}

// policyFields are the members of the body for the flags that were given.
func policyFields(f *pflag.FlagSet) (fields map[string]any, err error) {
	fields = map[string]any{}
	numbers := map[string]string{"wait-timer": "waitTimerSeconds", "hold-expiry": "holdExpirySeconds", "concurrency-limit": "concurrencyLimit",
		"concurrency-timeout": "concurrencyTimeoutMs"}
	lists := map[string]string{"branches": "branchRestrictions", "trigger-types": "triggerTypeFilters", "repos": "repoPatterns",
		"reviewers": "requiredReviewers", "required-reviewers": "requiredReviewers"}
	texts := map[string]string{"type": "type", "concurrency-strategy": "concurrencyStrategy"}
	f.Visit(func(flag *pflag.Flag) {
		text := flag.Value.String()
		var wrong error
		switch {
		case numbers[flag.Name] != "":
			fields[numbers[flag.Name]], wrong = f.GetInt64(flag.Name)
		case lists[flag.Name] != "":
			var list []string
			list, wrong = f.GetStringSlice(flag.Name)
			fields[lists[flag.Name]] = append([]string{}, list...)
		case texts[flag.Name] != "":
			fields[texts[flag.Name]] = text
		default:
			wrong = special(fields, flag.Name, text)
		}
		if err == nil {
			err = wrong
		}
	})
	return fields, err
}

// special reads the flags that are neither numbers nor lists.
func special(fields map[string]any, flag, text string) (err error) {
	switch flag {
	case "enabled":
		fields["enabled"], err = truth(text)
	case "allow-local-execution":
		fields["allowLocalExecution"], err = truth(text)
	case "glob", "glob-pattern":
		fields["type"], fields["globPattern"] = "glob", text
	case "branch-restrictions":
		var list []string
		if json.Unmarshal([]byte(text), &list) != nil {
			return console.Usage("--branch-restrictions: it must be a JSON list of texts, such as [\"main\"], or null")
		}
		fields["branchRestrictions"] = list
	case "minimum-trust":
		fields["minimumTrust"] = text
		if text == "" || text == "null" {
			fields["minimumTrust"] = nil
		}
	}
	return err
}
