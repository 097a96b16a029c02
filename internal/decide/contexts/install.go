package contexts

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"kici/internal/core/ci"
	"kici/internal/core/lockfile"
)

// Ref names a secret of a context, written <context>:<secret>.
type Ref struct{ Context, Secret string }

func (r Ref) String() string { return r.Context + ":" + r.Secret }

// ParseRef reads a reference: exactly one colon, with something on both sides.
func ParseRef(text string) (r Ref, ok bool) {
	r.Context, r.Secret, ok = strings.Cut(text, ":")
	if !ok || r.Context == "" || r.Secret == "" || strings.Contains(r.Secret, ":") {
		return Ref{}, false
	}
	return r, true
}

// InstallSecret is a secret that installing dependencies needs.
type InstallSecret struct {
	Field string // of the workflow: registries[0].tokenSecret or installEnv[0]
	Ref   Ref
}

// Install is what installing the dependencies of a workflow needs.
type Install struct {
	Stripped bool // the contributor may not have it: dependencies are installed without
	Secrets  []InstallSecret
}

// PlanInstall reads the references of a workflow. A contributor of whom is known that they are not trusted gets none. The
// error, a reference that is none or a registry that must not be sent a token, is for people and names the field; with
// allowHTTP registries may be anywhere without TLS.
func PlanInstall(registries []lockfile.Registry, env []string, tier ci.Tier, allowHTTP bool) (Install, error) {
	if len(registries)+len(env) == 0 {
		return Install{}, nil
	}
	if tier != "" && !tier.AtLeast(ci.TierTrusted) {
		return Install{Stripped: true}, nil
	}
	var in Install
	for i, r := range registries {
		if err := in.add(fmt.Sprintf("registries[%d].tokenSecret", i), r.TokenSecret); err != nil {
			return Install{}, err
		}
	}
	for i, ref := range env {
		if err := in.add(fmt.Sprintf("installEnv[%d]", i), ref); err != nil {
			return Install{}, err
		}
	}
	for i, r := range registries {
		if err := checkRegistry(r.URL, allowHTTP); err != nil {
			return Install{}, fmt.Errorf("registries[%d]: %w", i, err)
		}
	}
	return in, nil
}

func (in *Install) add(field, text string) error {
	ref, ok := ParseRef(text)
	if !ok {
		return fmt.Errorf("%s must use qualified <environment>:<secret-name> syntax (got %s)", field, ci.CutName(text))
	}
	in.Secrets = append(in.Secrets, InstallSecret{field, ref})
	return nil
}

// checkRegistry keeps tokens off networks that others read. The messages leave the address out but for its host: people
// put passwords there.
func checkRegistry(address string, allowHTTP bool) error {
	u, err := url.Parse(address)
	if err != nil || u.Hostname() == "" {
		return errors.New("url must be an absolute https URL")
	}
	if u.Scheme == "https" || u.Scheme == "http" && (allowHTTP || nearby(u.Hostname())) {
		return nil
	}
	return fmt.Errorf("url of host %s must be https (http is for localhost, loopback addresses and *.local, or where the organisation allows it)", u.Hostname())
}

// nearby tells whether a host is this machine or one that only the local network names.
func nearby(host string) bool {
	host = strings.ToLower(host)
	if host == "localhost" || strings.HasSuffix(host, ".local") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback()
}

// Contexts are the names of the contexts that the secrets are of, each once, in the order of the workflow.
func (in Install) Contexts() []string {
	var all []string
	for _, s := range in.Secrets {
		if !slices.Contains(all, s.Ref.Context) {
			all = append(all, s.Ref.Context)
		}
	}
	return all
}

// Protect asks the gates of the contexts that the secrets are of, which r binds, as Protect does for a job. Installing
// takes no slot of theirs, and what the workflow asks for besides is no matter of it. The error is the first rejection,
// for people.
func (in Install) Protect(r Request) (Verdict, error) {
	r.Occupying, r.Approval = 0, nil
	v := Protect(r)
	for i := range v.Holds {
		v.Holds[i].ReplacesOlder = false // those who wait for the slots lose nothing to what takes none
		why := &v.Holds[i].Reason
		why.Message = ci.CutText(fmt.Sprintf("The secrets of %s that installing dependencies needs: %s", strings.Join(in.Contexts(), ", "), why.Message))
	}
	if len(v.Rejections) == 0 {
		return v, nil
	}
	first := v.Rejections[0]
	if first.Code == ci.ReasonContextNotFound {
		return v, fmt.Errorf("%s: refers to environment '%s' which does not exist", in.list(first.Context), first.Context)
	}
	return v, fmt.Errorf("environment '%s' install gate reject: %s", first.Context, first.Detail)
}

// list is the list of the workflow that refers to a context first.
func (in Install) list(context string) string {
	for _, s := range in.Secrets {
		if s.Ref.Context == context {
			list, _, _ := strings.Cut(s.Field, "[")
			return list
		}
	}
	return "registries"
}

// Values gives the value of each secret, in order, from those of the contexts by name and key. The error names the first
// that is missing.
func (in Install) Values(byContext map[string]map[string]string) ([]string, error) {
	values := make([]string, len(in.Secrets))
	for i, s := range in.Secrets {
		value, ok := byContext[s.Ref.Context][s.Ref.Secret]
		if !ok {
			return nil, s.missing()
		}
		values[i] = value
	}
	return values, nil
}

// Missing is the error of Values, from the keys of the secrets of the contexts alone.
func (in Install) Missing(byContext map[string][]string) error {
	for _, s := range in.Secrets {
		if !slices.Contains(byContext[s.Ref.Context], s.Ref.Secret) {
			return s.missing()
		}
	}
	return nil
}

func (s InstallSecret) missing() error {
	return fmt.Errorf("%s: environment '%s' has no secret '%s'", s.Field, s.Ref.Context, s.Ref.Secret)
}
