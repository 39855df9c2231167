package opsdocs

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// board is the part of a Grafana dashboard that is checked.
type board struct {
	UID        string
	Title      string
	Templating struct {
		List []struct {
			Name, Type, Definition string
			Query                  any
			Datasource             source
		}
	}
	Panels []panel
}

type source struct{ Type, UID string }

type panel struct {
	ID          int
	Type        string
	Title       string
	Description string
	Datasource  source
	GridPos     struct{ H, W, X, Y int }
	Targets     []struct {
		Expr       string
		RefID      string
		Datasource source
	}
	FieldConfig struct{ Defaults struct{ Unit string } }
}

func boards(t *testing.T) map[string]board {
	t.Helper()
	files, err := filepath.Glob(top + "deploy/grafana/*.json")
	if err != nil || len(files) < 2 {
		t.Fatalf("only %q, %v", files, err)
	}
	all := map[string]board{}
	for _, file := range files {
		var b board
		if err := json.Unmarshal([]byte(read(t, strings.TrimPrefix(filepath.ToSlash(file), top))), &b); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[filepath.Base(file)] = b
	}
	return all
}

func TestDashboardsCanBeImportedAnywhere(t *testing.T) {
	uids := map[string]bool{}
	for file, b := range boards(t) {
		if b.UID == "" || len(b.UID) > 40 || uids[b.UID] || b.Title == "" {
			t.Errorf("%s: uid %q, title %q", file, b.UID, b.Title)
		}
		uids[b.UID] = true
		variables := map[string]bool{}
		for _, v := range b.Templating.List {
			variables[v.Name] = true
			if v.Name == "datasource" && (v.Type != "datasource" || v.Query != "prometheus") {
				t.Errorf("%s: the variable datasource is %+v", file, v)
			} else if v.Name != "datasource" && v.Datasource != (source{"prometheus", "${datasource}"}) {
				t.Errorf("%s: the variable %s has its values from %v", file, v.Name, v.Datasource)
			}
		}
		if !variables["datasource"] {
			t.Errorf("%s has no variable for the data source", file)
		}
		for _, p := range b.Panels {
			checkPanel(t, fmt.Sprintf("%s: %s", file, p.Title), p, variables)
		}
		checkPlaces(t, file, b.Panels)
	}
}

func checkPanel(t *testing.T, where string, p panel, variables map[string]bool) {
	t.Helper()
	if p.Title == "" {
		t.Errorf("%s: panel %d has no title", where, p.ID)
	}
	if p.Type == "row" {
		return
	}
	if p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 ||
		p.Datasource != (source{"prometheus", "${datasource}"}) {
		t.Errorf("%s: description %q, unit %q, %d queries of %v", where, p.Description, p.FieldConfig.Defaults.Unit,
			len(p.Targets), p.Datasource)
	}
	for _, target := range p.Targets {
		if target.Expr == "" || target.RefID == "" || target.Datasource != p.Datasource {
			t.Errorf("%s: a query is %+v", where, target)
		}
		for _, v := range regexp.MustCompile(`\$([a-z]+)`).FindAllStringSubmatch(target.Expr, -1) {
			if !variables[v[1]] {
				t.Errorf("%s: unknown variable $%s", where, v[1])
			}
		}
	}
}

// checkPlaces checks that panels do not overlap.
func checkPlaces(t *testing.T, file string, panels []panel) {
	t.Helper()
	ids := map[int]bool{}
	taken := map[[2]int]string{}
	for _, p := range panels {
		if ids[p.ID] {
			t.Errorf("%s: two panels have the id %d", file, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%s: %q overlaps %q, or is off the page", file, p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

func TestDashboardsUseExistingMetrics(t *testing.T) {
	all := known(t)
	for file, b := range boards(t) {
		for _, p := range b.Panels {
			for _, target := range p.Targets {
				checkQuery(t, all, file+": "+p.Title, target.Expr)
			}
		}
		for _, v := range b.Templating.List {
			checkQuery(t, all, file+": $"+v.Name, v.Definition)
		}
	}
}
