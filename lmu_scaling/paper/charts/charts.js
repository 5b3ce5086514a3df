"use strict";
// Draws every <div class="chart"> from the JSON in the element after it; the static figure is then for paper only.
(() => {
  const small = window.matchMedia("(max-width: 600px)");

  const settings = () => ({
    responsive: true,
    displaylogo: false,
    displayModeBar: small.matches ? false : "hover",
    modeBarButtonsToRemove: ["select2d", "lasso2d", "toImage", "autoScale2d"],
    scrollZoom: false,
  });

  const merged = (base, more) => ({ ...base, ...more });

  // On a narrow screen a finger scrolls the page, so that the chart must not be dragged.
  const layoutOf = (chart) => {
    const content = chart.content;
    const layout = structuredClone(small.matches ? merged(content.layout, content.narrow) : content.layout);
    if (small.matches) {
      layout.dragmode = false;
      layout.font.size = 12;
      layout.margin = merged(layout.margin, { l: 45, r: 5 });
    }
    chart.style.height = `${layout.height || (small.matches ? 420 : 500)}px`;
    delete layout.height;
    return layout;
  };

  // The legend by keyboard: every entry can be focused, and Enter or Space does what a click does.
  const group = (trace, index) => trace.legendgroup || `trace ${index}`;

  const toggle = (chart, name) => {
    const own = chart.data.map((trace, i) => (group(trace, i) === name ? i : -1)).filter((i) => i >= 0);
    const shown = own.some((i) => chart.data[i].visible !== "legendonly");
    Plotly.restyle(chart, { visible: shown ? "legendonly" : true }, own);
  };

  const makeReachable = (chart) => {
    const named = chart.data.map((trace, i) => [trace, group(trace, i)]).filter(([trace]) => trace.showlegend !== false);
    chart.querySelectorAll(".legend .traces").forEach((entry, i) => {
      const button = entry.querySelector(".legendtoggle");
      if (!button || !named[i]) return;
      const [trace, name] = named[i];
      button.setAttribute("tabindex", "0");
      button.setAttribute("role", "switch");
      button.setAttribute("aria-label", entry.textContent.trim() || name);
      button.setAttribute("aria-checked", String(trace.visible !== "legendonly"));
      button.onkeydown = (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        chart.focusOn = i;
        toggle(chart, name);
      };
      if (chart.focusOn === i) {
        chart.focusOn = undefined;
        button.focus();
      }
    });
  };

  // The ticks of the printed figure suit the whole range only.
  const renewTicks = (chart, change) => {
    const wanted = {};
    for (const key of Object.keys(change)) {
      const [, axis, what] = key.match(/^(xaxis\d*)\.(range|autorange)/) || [];
      if (axis && chart.layout[axis].tickvals) wanted[`${axis}.tickmode`] = what === "range" ? "auto" : "array";
    }
    if (Object.keys(wanted).length) Plotly.relayout(chart, wanted);
  };

  const draw = (chart) => {
    if (chart.content) return;
    chart.content = JSON.parse(chart.nextElementSibling.textContent);
    chart.hidden = false;
    chart.parentElement.classList.add("live");
    Plotly.newPlot(chart, chart.content.data, layoutOf(chart), settings()).then(() => {
      chart.on("plotly_afterplot", () => makeReachable(chart));
      chart.on("plotly_relayout", (change) => renewTicks(chart, change));
      makeReachable(chart);
      chart.dataset.drawn = "yes";
    });
  };

  const all = () => document.querySelectorAll("div.chart");
  all().forEach(draw);
  new MutationObserver(() => all().forEach(draw)).observe(document.body, { childList: true, subtree: true }); // a notebook adds cells
  small.addEventListener("change", () =>
    all().forEach((chart) => Plotly.react(chart, chart.data, layoutOf(chart), settings()))
  );
})();
