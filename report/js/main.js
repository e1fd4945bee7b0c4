// Puts the page together, and again whenever a filter or the theme changes.

const SECTIONS = [
  timeSection,
  winnerSection,
  bytesSection,
  wireSection,
  topKSection,
  timePartsSection,
  selectSection,
  codecSection,
  recipeSection,
  stagesSection,
  lossSection,
  papersSection,
];

function renderSection({ id, title, about, cards, command }) {
  const missing = () =>
    element(
      "p",
      { class: "empty" },
      "No rows of this kind are left by the filters or in the files. " + "This makes some:",
      element("code", {}, command),
    );
  return element(
    "section",
    { id },
    element("h2", {}, title),
    element("p", {}, about),
    cards.length ? element("div", { class: "charts" }, cards) : missing(),
  );
}

/// The largest comparison on the network that `places` puts first: the figure that people come for.
function headline() {
  const rows = filtered(rowsOf("allreduce")).filter((row) => !isDense(row.algorithm) && speedUp(row));
  const [first] = places(rows);
  if (!first) return null;
  const group = places(rows)
    .filter((own) => own[0].network === first[0].network)
    .at(-1);
  const best = [...groupBy(group, (row) => `${row.density} ${isCoded(row)}`).values()]
    .map((own) => own.sort(byNumber("seconds_median"))[0])
    .sort((left, right) => left.density - right.density || isCoded(left) - isCoded(right));
  return element(
    "section",
    { id: "headline" },
    element("h2", {}, "Against the best dense row"),
    element("p", {}, placeTitle(group[0])),
    element(
      "div",
      { class: "cards" },
      best.map((row) =>
        element(
          "div",
          { class: "figure" },
          element("b", {}, formatTimes(speedUp(row))),
          element("span", {}, `at density ${formatShare(row.density)}`),
          element(
            "span",
            {},
            `${formatSeconds(row.seconds_median)} by ${row.algorithm === "auto" ? row.chosen : row.algorithm}`,
          ),
        ),
      ),
    ),
  );
}

function renderOrigin() {
  const each = (field) => distinct(allRows, field).filter(Boolean).join(", ");
  const commits = each("git_commit");
  const text = [
    `${allRows.length.toLocaleString("en")} measurements`,
    each("cpu"),
    `${each("cores")} cores`,
    each("compiler"),
    each("mpi"),
    commits && `commit ${commits}`,
    data.made.slice(0, 10),
  ];
  document.getElementById("origin").textContent = text.filter(Boolean).join(" · ");
}

function render() {
  clearCharts();
  renderFilters(render);
  document
    .getElementById("sections")
    .replaceChildren(...[headline(), ...SECTIONS.map((section) => renderSection(section()))].filter(Boolean));
  drawCharts();
}

// Paper is light, shows every table, and is narrower than the screen.
function watchPrinting() {
  let before = null;
  addEventListener("beforeprint", () => {
    before = { chosenTheme };
    chosenTheme = "light";
    applyTheme();
    render();
    for (const details of document.querySelectorAll("details")) details.open = true;
    for (const chart of Object.values(Chart.instances)) chart.resize(640, chart.height);
  });
  addEventListener("afterprint", () => {
    ({ chosenTheme } = before);
    applyTheme();
    render();
  });
}

applyTheme();
watchTheme(render);
watchPrinting();
renderOrigin();
render();
