// The filter bar: which rows all sections show. Chips of algorithms are the legend of the charts as well.

const FIELDS = [
  { field: "network", title: "Network", format: String },
  { field: "ranks", title: "Ranks P", format: String },
  { field: "dimension", title: "Dimension N", format: formatDimension },
  { field: "type", title: "Values", format: String },
];

const filters = { chosen: {}, hidden: new Set() };

/// Rows that pass; a row that lacks a field is not concerned by its filter.
function filtered(rows) {
  return rows.filter(
    (row) =>
      !filters.hidden.has(row.algorithm) &&
      FIELDS.every(
        ({ field }) =>
          filters.chosen[field] == null || row[field] == null || String(row[field]) === filters.chosen[field],
      ),
  );
}

function selectOf({ field, title, format }, onChange) {
  const values = distinct(allRows, field).sort(compare);
  if (values.length < 2) return null;
  const select = element(
    "select",
    {
      id: `filter-${field}`,
      onchange: () => {
        filters.chosen[field] = select.value === "" ? null : select.value;
        onChange();
      },
    },
    element("option", { value: "" }, "all"),
    values.map((value) => element("option", { value }, format(value))),
  );
  select.value = filters.chosen[field] ?? "";
  return element("label", { class: "field" }, title, select);
}

function chipOf(algorithm, onChange) {
  const swatch = element("span", { class: "swatch", style: `background:${colourOf(algorithm)}` });
  return element(
    "button",
    {
      class: "chip",
      type: "button",
      "aria-pressed": !filters.hidden.has(algorithm),
      onclick: (event) => {
        const isShown = event.currentTarget.getAttribute("aria-pressed") === "true";
        filters.hidden[isShown ? "add" : "delete"](algorithm);
        onChange();
      },
    },
    swatch,
    algorithm,
  );
}

function renderFilters(onChange) {
  const algorithms = distinct(rowsOf("allreduce"), "algorithm").sort(
    (left, right) => isDense(left) - isDense(right) || left.localeCompare(right),
  );
  const chips = element(
    "div",
    { class: "chips" },
    algorithms.map((algorithm) => chipOf(algorithm, onChange)),
  );
  document
    .getElementById("filters")
    .replaceChildren(
      ...[...FIELDS.map((field) => selectOf(field, onChange)), algorithms.length ? chips : null].filter(Boolean),
    );
}
