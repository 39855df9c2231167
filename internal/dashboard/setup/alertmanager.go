package setup

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/clustermutex/unlocker/internal/text"
)

// checkAlertmanager refuses what is no address of pages of Alertmanager. None is fine.
func checkAlertmanager(address string) error {
	if address == "" {
		return nil
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" ||
		u.Fragment != "" {
		return fmt.Errorf("the address of Alertmanager %q is not of the form https://host/path",
			text.Clip(address, 100))
	}
	return nil
}

// Silence is the address of Alertmanager's form for a silence of all alerts about a lock; empty where Alertmanager's is
// not known.
func (c *Config) Silence(lock, comment string) string {
	if c.Alertmanager == "" {
		return ""
	}
	label := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text.NameLabel(lock))
	address := strings.TrimSuffix(c.Alertmanager, "/") + "/#/silences/new?filter=" + fragment(`{lock="`+label+`"}`)
	if comment != "" {
		address += "&comment=" + fragment(comment)
	}
	return address
}

// fragment escapes a value in the query of a fragment, where a plus is a plus.
func fragment(value string) string { return strings.ReplaceAll(url.QueryEscape(value), "+", "%20") }
